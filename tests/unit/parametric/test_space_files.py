"""Files of a space: their allowed content, and errors that name the field."""

import json

import pytest
import yaml

from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import SpaceError, read_space

PRECISION = {"low": {"count": 32}, "high": {"count": 128}}


def write_space(*tasks, **fields):
    return yaml.safe_dump({"name": "example", "precision": PRECISION, "tasks": list(tasks)} | fields, sort_keys=False)


def build_manifold(**length):
    return {"name": "brackets", "mode": "manifold", "manifold": {"length": {"range": [8]} | length}}


def list_problems(*tasks, **fields):
    with pytest.raises(SpaceError) as refused:
        resolve_space(read_space(write_space(*tasks, **fields)))
    return refused.value.problems


def test_grid_is_the_default_mode_and_combines_all_values():
    space = resolve_space(
        read_space(write_space({"name": "arithmetic", "params": {"length": [8, 16], "max_depth": [0, 1]}}))
    )
    assert [point.params for point in space.points] == [
        {"length": 8, "max_depth": 0},
        {"length": 8, "max_depth": 1},
        {"length": 16, "max_depth": 0},
        {"length": 16, "max_depth": 1},
    ]


def test_a_list_has_its_own_parameter_sets_and_counts():
    task = {"name": "arithmetic", "mode": "list", "params": [{"length": 8}, {"length": 9, "max_depth": 1, "count": 5}]}
    points = resolve_space(read_space(write_space(task))).points
    assert [(point.params, point.count) for point in points] == [
        ({"length": 8}, 32),
        ({"length": 9, "max_depth": 1}, 5),
    ]


def test_a_manifold_is_resolved_by_degree_and_density():
    axis = {"range": [8, 16, 24, 32, 40, 48], "window": {"skip": "degree", "body": 4}}
    axis |= {"resample:corner": {"first": 1, "last": 1}}
    spec = read_space(write_space({"name": "brackets", "mode": "manifold", "manifold": {"length": axis, "kinds": 2}}))
    assert [point.params["length"] for point in resolve_space(spec, degree=1).points] == [16, 24, 32, 40]
    assert [point.params["length"] for point in resolve_space(spec, degree=1, density="corner").points] == [16, 40]


def test_several_manifolds_of_a_task_are_joined_without_repeating_a_point():
    manifolds = [{"length": [8, 16]}, {"length": [16, 24]}]
    space = resolve_space(read_space(write_space({"name": "brackets", "mode": "manifold", "manifolds": manifolds})))
    assert [point.params["length"] for point in space.points] == [8, 16, 24]
    assert space.duplicates == 1


def test_degree_and_density_of_a_task_take_precedence():
    axis = {"range": [8, 16, 24, 32], "window": {"skip": "degree", "body": 2}, "resample:corner": {"first": 1}}
    task = {"name": "brackets", "mode": "manifold", "manifold": {"length": axis}, "degree": 2, "density": "normal"}
    spec = read_space(write_space(task))
    assert [point.params["length"] for point in resolve_space(spec, degree=0, density="corner").points] == [24, 32]


def test_the_static_mode_is_refused_with_a_reason():
    (problem,) = list_problems({"name": "arithmetic", "mode": "static", "params": {}})
    assert problem.startswith("tasks[0].mode: static is not supported as a mode: a fixed file")


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (
            build_manifold(**{"windw": {"body": 1}}),
            "tasks[0].manifold.length.windw: unknown field; did you mean window?",
        ),
        (
            build_manifold(**{"window": {"bdy": 1}}),
            "tasks[0].manifold.length.window.bdy: unknown field; did you mean body?",
        ),
        (
            build_manifold(**{"resample:corner": {"frst": 1}}),
            "tasks[0].manifold.length.resample:corner.frst: unknown field; did you mean first?",
        ),
        (
            build_manifold(**{"resample": {"first": 1}}),
            "tasks[0].manifold.length.resample: unknown field",
        ),
        (
            build_manifold(**{"resample:edge": {"first": 1}}),
            "tasks[0].manifold.length.resample:edge: input should be 'normal', 'medium', 'lowdef' or 'corner'",
        ),
        (
            {"name": "brackets", "mode": "manifold", "manifolds": [{"length": {"rnge": [8], "range": [1]}}]},
            "tasks[0].manifolds[0].length.rnge: unknown field; did you mean range?",
        ),
        ({"name": "brackets", "parms": {}}, "tasks[0].parms: unknown field; did you mean params?"),
        ({"name": "brackets", "rounds": []}, "tasks[0].rounds: unknown field"),
        (
            {"name": "brackets", "params": {"length": {"range": [8], "window": {"body": 1}}}},
            "tasks[0].params.length.window: unknown field",
        ),
        (
            {"name": "brackets", "mode": "random"},
            "tasks[0].mode: choose grid, list or manifold, not 'random'",
        ),
        (
            {"name": "brackets", "mode": "manifold"},
            "tasks[0]: mode manifold needs a manifold, here or in the task's file",
        ),
        ({"name": "brakets"}, "tasks[0]: 'brakets' is not a task; did you mean brackets?"),
        (
            {"name": "brackets", "params": {"lenght": 8}},
            "tasks[0].params.lenght: brackets has no such parameter; did you mean length?",
        ),
        (
            {"name": "brackets", "params": {"length": [8, 0]}},
            "tasks[0].params.length: input should be greater than or equal to 1, not 0",
        ),
        (
            {"name": "brackets", "mode": "list", "params": [{}, {"kinds": 5}]},
            "tasks[0].params[1].kinds: input should be less than or equal to 4, not 5",
        ),
        (
            build_manifold(**{"window": {"skip": 1}}),
            "tasks[0].manifold.length: no value is left at degree 0, normal",
        ),
        (
            {"name": "brackets", "params": {"count": 0}},
            "tasks[0].params.count: a whole number from 1 to 100,000, not 0",
        ),
        ({"name": "brackets", "targetciht": 0.05}, "tasks[0]: targetciht and backoffht come together"),
        ({"name": "brackets", "maximum": 16}, "tasks[0].maximum: 16 is below the count of 32"),
        ({"name": "brackets", "targetci": 2}, "tasks[0].targetci: input should be less than or equal to 1"),
    ],
)
def test_an_error_names_the_field_by_its_path(task, problem):
    assert list_problems(task) == [problem]


def test_errors_at_the_top_level_name_their_fields():
    assert list_problems({"name": "sort"}, precison={}) == ["precison: unknown field; did you mean precision?"]
    assert list_problems({"name": "sort"}, precision={"low": {}}) == ["precision.low.count: field required"]
    assert list_problems({"name": "sort"}, {"name": "sort"}) == ["tasks: two tasks have the name 'sort'"]
    assert list_problems({"name": "sort"}, precision={"low": {"count": 8, "cout": 1}}) == [
        "precision.low.cout: unknown field; did you mean count?"
    ]


def test_a_text_that_is_not_a_yaml_mapping_is_refused():
    for text in ("- 1", "3", "", "a: [1", "a: &b 1\nc: *b"):
        with pytest.raises(SpaceError):
            read_space(text)


def test_the_first_precision_is_the_default_and_an_unknown_precision_is_reported():
    spec = read_space(write_space({"name": "sort"}))
    assert resolve_space(spec).points[0].count == 32
    assert resolve_space(spec, precision="high").points[0].count == 128
    with pytest.raises(SpaceError, match="precision: the file has low, high, not 'mid'"):
        resolve_space(spec, precision="mid")


def test_stopping_fields_of_a_task_override_those_of_the_precision():
    block = {"count": 32, "targetci": 0.1, "maximum": 512, "abortht": 0.5}
    spec = read_space(write_space({"name": "sort", "targetci": 0.05}, {"name": "letters"}, precision={"low": block}))
    sort, letters = resolve_space(spec).points
    assert sort.stopping == {"targetci": 0.05, "maximum": 512, "abortht": 0.5}
    assert letters.stopping == {"targetci": 0.1, "maximum": 512, "abortht": 0.5}
    assert resolve_space(spec).max_cases == 1024


def test_stopping_fields_match_the_stopping_rule():
    from dataclasses import fields

    from datasets_app.parametric.spec import StoppingFields
    from runs_app.stopping.rules import StoppingRule

    assert set(StoppingFields.model_fields) <= {field.name for field in fields(StoppingRule)}


def test_a_runner_file_without_precision_needs_a_count_in_every_set():
    sets = [{"count": 80, "length": 10, "max_depth": 2}, {"count": 80, "length": 20, "max_depth": 4}]
    tasks = [{"name": "boolean", "file": "tasks/boolean.json", "mode": "list", "params": sets}]
    space = resolve_space(read_space(yaml.safe_dump({"name": "a4", "tasks": tasks})))
    assert [(point.params, point.count) for point in space.points] == [
        ({"length": 10, "max_depth": 2}, 80),
        ({"length": 20, "max_depth": 4}, 80),
    ]
    del sets[1]["count"]
    with pytest.raises(SpaceError, match=r"tasks\[0\]\.params\[1\]\.count: is required"):
        resolve_space(read_space(yaml.safe_dump({"name": "a4", "tasks": tasks})))


def test_a_task_file_gives_manifold_degree_and_density():
    file = {
        "name": "brackets",
        "manifold": {"length": {"range": [8, 16, 24], "window": {"skip": "degree", "body": 1}}},
        "degree": 2,
    }
    text = write_space({"name": "closing", "file": "tasks/b.json", "mode": "manifold"})
    spec = read_space(text, {"tasks/b.json": json.dumps(file)})
    (point,) = resolve_space(spec, degree=0).points
    assert (point.task, point.base_task, point.params) == ("closing", "brackets", {"length": 24})


def test_a_misspelt_field_of_a_task_file_is_reported_with_the_file():
    text = write_space({"name": "closing", "file": "tasks/b.json", "mode": "manifold"})
    file = {"name": "brackets", "manifold": {"length": {"range": [8], "windo": 1}}, "densty": "corner"}
    with pytest.raises(SpaceError) as refused:
        read_space(text, {"tasks/b.json": json.dumps(file)})
    assert refused.value.problems == [
        "tasks/b.json: manifold.length.windo: unknown field; did you mean window?",
        "tasks/b.json: densty: unknown field; did you mean density?",
    ]


def test_fields_of_reasonscape_without_a_meaning_here_are_left_out_with_a_note():
    text = write_space(
        {"name": "closing", "file": "tasks/b.json", "mode": "manifold", "label": "Closing", "views": ["by length"]},
        surfaces=[{"name": "plane"}],
    )
    file = {
        "name": "close the brackets",
        "file": "tasks/brackets.py",
        "answer": "Final Answer: (.*)",
        "rounds": 3,
        "manifold": {"length": {"range": [8, 16]}},
    }
    spec = read_space(text, {"tasks/b.json": json.dumps(file)})
    assert spec.notes == (
        "surfaces is not used: the points come from degree, density and precision.",
        "tasks/b.json: answer is not used: answers are read by the rule of the task here.",
        "tasks/b.json: rounds is not used: the field is unknown here.",
        "tasks[0].views is not used: pages choose their own views.",
    )
    assert {(point.base_task, point.params["length"]) for point in resolve_space(spec).points} == {
        ("brackets", 8), ("brackets", 16)
    }  # fmt: skip


def test_a_calibrated_task_has_the_parameters_of_the_file_and_a_note():
    task = {"name": "tables", "mode": "calibrate", "target_tokens": [1000, 8000], "params": {"rows": [5, 10]}}
    spec = read_space(write_space(task))
    assert len(resolve_space(spec).points) == 2
    assert spec.notes == (
        "tasks[0].target_tokens is not used: no parameter is solved for a number of tokens.",
        "tasks[0]: mode calibrate is read as grid. It has the parameters of the file only.",
    )


def test_an_oversized_space_is_refused_before_it_is_built():
    axis = {"from": 1, "to": 400}
    params = {"length": axis, "close_weight_multiplier": {"from": 1, "to": 100}}
    assert list_problems({"name": "brackets", "params": params}) == ["tasks: 40,000 points; the limit is 20,000"]
    assert list_problems({"name": "brackets", "params": {"length": axis}}, precision={"all": {"count": 100_000}}) == [
        "precision: 40,000,000 cases; the limit is 5,000,000"
    ]
