"""The form of a task's parameters on the page that designs a space: values, lists, ranges and manifolds as YAML."""

import pytest

from datasets_app.generators.registry import all_generators
from datasets_app.parametric.spaces import resolve
from datasets_app.parametric.spec import read_space
from tests.page_text import page_text

PAGE = "/datasets/new/parametric/"
HEAD = "name: small\nprecision:\n  low: {count: 4}\ntasks:\n"
pytestmark = pytest.mark.django_db


def send(client, button, text=HEAD, **fields):
    return client.post(PAGE, {button: "1", "text": text, **fields})


def write(client, text=HEAD, task="arithmetic", **values):
    return send(client, "write", text, shown_task=task, **{f"task-{name}": value for name, value in values.items()})


def text_of(response):
    return response.context["form"].initial["text"]


def test_the_parameters_of_a_task_are_shown_with_help_bounds_and_default(as_):
    response = send(as_("researcher"), "set", task="arithmetic")
    page = page_text(response)
    assert "Parameters of arithmetic" in page
    assert "3 to 100; default 8; higher is harder" in page
    assert 'name="task-length"' in page
    assert 'name="task-length-body"' in page
    assert text_of(response) == HEAD


@pytest.mark.parametrize("task", sorted(all_generators()))
def test_every_task_has_a_form(as_, task):
    page = page_text(send(as_("researcher"), "set", task=task))
    for info in all_generators()[task].describe_params():
        assert f'name="task-{info.name}"' in page


def test_values_lists_and_ranges_are_written_as_a_grid(as_):
    response = write(as_("researcher"), length="8, 16", max_depth="0..4 step 2", min_number="-5")
    (task,) = read_space(text_of(response)).tasks
    points = resolve(read_space(text_of(response))).points
    assert (task.name, task.mode, len(points)) == ("arithmetic", "grid", 6)
    assert {point.params["max_depth"] for point in points} == {0, 2, 4}
    assert points[0].params == {"length": 8, "max_depth": 0, "min_number": -5}
    assert response.context["values"] is None
    assert [row.points for row in response.context["preview"]["tasks"]] == [6]


def test_values_per_degree_are_written_as_a_manifold(as_):
    response = write(as_("researcher"), **{"length": "8..48 step 8", "length-body": "4", "max_depth": "2"})
    spec = read_space(text_of(response))
    assert spec.tasks[0].mode == "manifold"
    at = {degree: [point.params["length"] for point in resolve(spec, degree=degree).points] for degree in (0, 1)}
    assert at == {0: [8, 16, 24, 32], 1: [16, 24, 32, 40]}
    corner = resolve(spec, degree=1, density="corner").points
    assert [point.params["length"] for point in corner] == [16, 40]


def test_options_and_switches_are_written_as_such(as_):
    client = as_("researcher")
    boolean = read_space(text_of(write(client, task="boolean", format="T_F, YES_NO"))).tasks[0]
    assert boolean.params["format"].range == ["T_F", "YES_NO"]
    movies = read_space(text_of(write(client, task="movies", hints="true"))).tasks[0]
    assert movies.params["hints"].range == [True]


def test_a_repeated_task_gets_a_name_of_its_own_and_an_empty_text_a_head(as_):
    client = as_("researcher")
    twice = text_of(write(client, text_of(write(client, "", length="8")), length="12"))
    assert [(task.name, task.generator_name) for task in read_space(twice).tasks] == [
        ("arithmetic", "arithmetic"),
        ("arithmetic-2", "arithmetic"),
    ]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("length", "2", "2 is outside 3 to 100."),
        ("length", "8..400", "101 is outside 3 to 100."),
        ("length", "many", "Write a whole number, several with commas, or a range such as 8..48 step 8, not 'many'."),
        ("length", "9..3", "A range runs upwards: from is at most to, and step is above 0."),
        ("length-body", "4", "Give the values that the degrees choose from."),
        ("prob_open", "0.5, x", "Write a number, several with commas"),
    ],
)
def test_a_wrong_value_is_named_at_its_parameter_and_nothing_is_lost(as_, field, value, told):
    response = write(as_("researcher"), **{"max_depth": "1, 2", field: value})
    values = response.context["values"]
    assert any(told in message for message in values.errors[field.removesuffix("-body")])
    assert told.replace("'", "&#x27;") in page_text(response)
    assert values["max_depth"].value() == "1, 2"
    assert text_of(response) == HEAD


def test_entered_parameters_stay_when_another_button_is_pressed(as_):
    response = send(as_("researcher"), "preview", HEAD + "  - name: dates\n", shown_task="arithmetic",
                    **{"task-length": "8, 9"})  # fmt: skip
    assert response.context["values"]["length"].value() == "8, 9"
    assert [row.name for row in response.context["preview"]["tasks"]] == ["dates"]
