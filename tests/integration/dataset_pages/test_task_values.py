"""The form of a task's parameters: values, lists, ranges and manifolds, written to the YAML of the space."""

import pytest

from datasets_app.generators.registry import load_generators
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from tests.page_text import page_text

PAGE = "/datasets/new/parametric/"
HEAD = "name: small\nprecision:\n  low: {count: 4}\ntasks:\n"
pytestmark = pytest.mark.django_db


def submit(client, button, text=HEAD, **fields):
    return client.post(PAGE, {button: "1", "text": text, **fields})


def write_task(client, text=HEAD, task="arithmetic", **values):
    return submit(client, "write", text, shown_task=task, **{f"task-{name}": value for name, value in values.items()})


def get_space_text(response):
    return response.context["form"].initial["text"]


def test_the_parameters_of_a_task_are_shown_with_help_bounds_and_default(as_):
    response = submit(as_("researcher"), "set", task="arithmetic")
    page = page_text(response)
    assert "Parameters of arithmetic" in page
    assert "3 to 100; default 8; higher is harder" in page
    assert 'name="task-length"' in page
    assert 'name="task-length-body"' in page
    assert get_space_text(response) == HEAD


@pytest.mark.parametrize("task", sorted(load_generators()))
def test_every_task_has_a_form(as_, task):
    page = page_text(submit(as_("researcher"), "set", task=task))
    for info in load_generators()[task].describe_params():
        assert f'name="task-{info.name}"' in page


def test_values_lists_and_ranges_are_written_as_a_grid(as_):
    response = write_task(as_("researcher"), length="8, 16", max_depth="0..4 step 2", min_number="-5")
    (task,) = read_space(get_space_text(response)).tasks
    points = resolve_space(read_space(get_space_text(response))).points
    assert (task.name, task.mode, len(points)) == ("arithmetic", "grid", 6)
    assert {point.params["max_depth"] for point in points} == {0, 2, 4}
    assert points[0].params == {"length": 8, "max_depth": 0, "min_number": -5}
    assert response.context["values"] is None
    assert [row.points for row in response.context["preview"]["tasks"]] == [6]


def test_values_per_degree_are_written_as_a_manifold(as_):
    response = write_task(as_("researcher"), **{"length": "8..48 step 8", "length-body": "4", "max_depth": "2"})
    spec = read_space(get_space_text(response))
    assert spec.tasks[0].mode == "manifold"
    at = {degree: [point.params["length"] for point in resolve_space(spec, degree=degree).points] for degree in (0, 1)}
    assert at == {0: [8, 16, 24, 32], 1: [16, 24, 32, 40]}
    corner = resolve_space(spec, degree=1, density="corner").points
    assert [point.params["length"] for point in corner] == [16, 40]


def list_lengths(text, *degrees):
    return [[point.params["length"] for point in resolve_space(read_space(text), degree=at).points] for at in degrees]


@pytest.mark.parametrize(
    ("window", "values_shown"),
    [
        ({"body": "2", "skip": "1"}, [[16, 24], [16, 24]]),
        ({"body": "2", "skip": "degree"}, [[8, 16], [16, 24]]),
        ({"head": "1", "body": "2", "skip": "2"}, [[8, 32, 40], [8, 32, 40]]),
        ({"head": "1", "body": "2"}, [[8, 16, 24], [8, 24, 32]]),
        ({"head": "2"}, [[8, 16], [8, 16]]),
        ({"head": "degree", "skip": "4"}, [[40, 48], [8, 48]]),
        ({"skip": "4"}, [[40, 48], [40, 48]]),
    ],
)
def test_first_and_skipped_values_shape_the_window(as_, window, values_shown):
    values = {f"length-{step}": value for step, value in window.items()}
    text = get_space_text(write_task(as_("researcher"), length="8..48 step 8", **values))
    assert list_lengths(text, 0, 1) == values_shown


TWO_TASKS = """name: small  # mine
precision:
  low: {count: 4}
tasks:
  - name: arithmetic
    degree: 1
    mode: manifold
    manifold:  # of lengths
      length: {range: [8, 16, 24, 32], window: {head: 1, skip: 1, body: 1}, "resample:medium": {last: 1}}
      max_depth: {from: 0, to: 4, step: 2}
      prob_open: 0.5

  # The second one.
  - name: boolean
    params: {length: 4, format: [T_F, YES_NO]}
"""


def test_the_form_shows_a_task_of_the_text_and_changes_it_in_its_place(as_):
    client = as_("researcher")
    values = submit(client, "set", TWO_TASKS, task="arithmetic").context["values"]
    values_shown = {name: values[name].value() for name in values.fields if values[name].value() not in (None, "")}
    assert values_shown == {
        "length": "8, 16, 24, 32", "length-head": "1", "length-skip": "1", "length-body": "1",
        "max_depth": "0..4 step 2", "prob_open": "0.5",
    }  # fmt: skip
    entries = {f"task-{name}": value for name, value in values_shown.items()} | {"shown_task": "arithmetic"}
    unchanged = get_space_text(submit(client, "replace", TWO_TASKS, shown_name="arithmetic", **entries))
    assert read_space(unchanged) == read_space(TWO_TASKS), "what the form has no field for stays"
    assert unchanged.endswith("  # The second one.\n" + TWO_TASKS.split("  # The second one.\n")[1])
    assert unchanged.startswith("name: small  # mine\n")
    changed = get_space_text(
        submit(client, "replace", TWO_TASKS, shown_name="arithmetic", **entries | {"task-length-skip": "2"})
    )
    assert read_space(changed).tasks[0].manifold["length"].window.skip == 2
    assert list_lengths(changed, 1)[0][:6] == [8] * 3 + [32] * 3


@pytest.mark.parametrize("task", sorted(load_generators()))
def test_every_task_comes_back_as_it_was_written(as_, task):
    """Parameters have their defaults, and numbers a window; all pass through the form and back."""
    client, infos = as_("researcher"), load_generators()[task].describe_params()
    values = {}
    for info in infos:
        values[info.name] = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
    number = next(info.name for info in infos if info.kind in ("integer", "number"))
    values |= {f"{number}-head": "1", f"{number}-skip": "0"}
    text = get_space_text(write_task(client, task=task, **values))
    form = submit(client, "set", text, task=task).context["values"]
    entries = {f"task-{name}": form[name].value() or "" for name in form.fields}
    rewritten = get_space_text(submit(client, "replace", text, shown_task=task, shown_name=task, **entries))
    assert rewritten == text


def test_a_task_in_a_line_with_others_is_not_changed_and_nothing_is_lost(as_):
    text = "{name: small, precision: {low: {count: 4}}, tasks: [{name: arithmetic, params: {length: 8}}]}"
    response = submit(as_("researcher"), "replace", text, shown_task="arithmetic", shown_name="arithmetic",
                    **{"task-length": "9"})  # fmt: skip
    assert "The text does not define arithmetic on separate lines. Choose Add task instead." in page_text(response)
    assert get_space_text(response) == text
    assert response.context["values"]["length"].value() == "9"


def test_a_task_whose_form_would_lose_something_is_not_shown(as_):
    text = HEAD + "  - {name: arithmetic, mode: list, params: [{length: 8}]}\n"
    values = submit(as_("researcher"), "set", text, task="arithmetic").context["values"]
    assert (values.replaces, values["length"].value()) == ("", None)


def test_options_and_switches_are_written_as_such(as_):
    client = as_("researcher")
    boolean = read_space(get_space_text(write_task(client, task="boolean", format="T_F, YES_NO"))).tasks[0]
    assert boolean.params["format"].range == ["T_F", "YES_NO"]
    movies = read_space(get_space_text(write_task(client, task="movies", hints="true"))).tasks[0]
    assert movies.params["hints"].range == [True]


def test_a_repeated_task_gets_its_own_name_and_an_empty_text_gets_a_header(as_):
    client = as_("researcher")
    twice = get_space_text(write_task(client, get_space_text(write_task(client, "", length="8")), length="12"))
    assert [(task.name, task.generator_name) for task in read_space(twice).tasks] == [
        ("arithmetic", "arithmetic"),
        ("arithmetic-2", "arithmetic"),
    ]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("length", "2", "2 is outside 3 to 100."),
        ("length", "8..400", "101 is outside 3 to 100."),
        (
            "length",
            "many",
            "Enter a whole number, a comma-separated list or a range such as 8..48 step 8, not 'many'.",
        ),
        ("length", "9..3", "A range runs upwards: from is at most to, and step is above 0."),
        ("length-body", "4", "Enter the values from which the window selects."),
        ("length-skip", "0", "Enter the values from which the window selects."),
        ("prob_open", "0.5, x", "Enter a number, a comma-separated list"),
    ],
)
def test_a_wrong_value_is_named_at_its_parameter_and_nothing_is_lost(as_, field, value, expected):
    response = write_task(as_("researcher"), **{"max_depth": "1, 2", field: value})
    values = response.context["values"]
    assert any(expected in message for message in values.errors[field.partition("-")[0]])
    assert expected.replace("'", "&#x27;") in page_text(response)
    assert values["max_depth"].value() == "1, 2"
    assert get_space_text(response) == HEAD


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"length-skip": "1.5"}, 'Enter a whole number from 0 to 1,000, or "degree".'),
        ({"length-head": "1001"}, 'Enter a whole number from 0 to 1,000, or "degree".'),
        ({"length-skip": "2"}, "The window leaves none of these 2 values at degree 1."),
    ],
)
def test_a_window_that_shows_nothing_is_refused_at_its_parameter(as_, window, expected):
    values = write_task(as_("researcher"), length="8, 9", **window).context["values"]
    assert expected in [message for messages in values.errors.values() for message in messages]


def test_entered_parameters_stay_when_another_button_is_pressed(as_):
    response = submit(as_("researcher"), "preview", HEAD + "  - name: dates\n", shown_task="arithmetic",
                    **{"task-length": "8, 9"})  # fmt: skip
    assert response.context["values"]["length"].value() == "8, 9"
    assert [row.name for row in response.context["preview"]["tasks"]] == ["dates"]
