"""Points, their number before generation, and their cases as items."""

import json

import pytest

from datasets_app.generators.registry import get_generator
from datasets_app.parametric.items import draw_cases, draw_examples, generate_point, read_points
from datasets_app.parametric.spaces import count_points, resolve_space
from datasets_app.parametric.spec import SpaceError, parse_space

AXIS = {
    "range": [8, 16, 24, 32, 40, 48],
    "window": {"skip": "degree", "body": 4},
    "resample:corner": {"first": 1, "last": 1},
}
TASKS = [
    {"name": "arithmetic", "params": {"length": [8, 16], "max_depth": [1, 2, 3]}},
    {"name": "brackets", "mode": "manifold", "manifold": {"length": AXIS, "kinds": [1, 2]}},
    {"name": "swaps", "task": "shuffle", "mode": "list", "params": [{"length": 3}, {"length": 4}]},
]


def build_space(tasks=TASKS, count=4, **options):
    return resolve_space(
        parse_space({"name": "example", "precision": {"low": {"count": count}}, "tasks": tasks}), **options
    )


def generate_items(space):
    return [item for point in space.points for item in generate_point(point, seed=space.seed)]


def rebuild_items(definition):
    return [item for point in read_points(definition) for item in generate_point(point, seed=definition["seed"])]


def index_items_by_key(space):
    return {
        item.key: (item.case.input, item.case.target, json.dumps(item.metadata())) for item in generate_items(space)
    }


def test_points_are_counted_by_degree_and_density_before_generation():
    counts = count_points(build_space().spec)
    assert counts["arithmetic"] == dict.fromkeys(counts["arithmetic"], 6)
    assert counts["swaps"][2, "corner"] == 2
    assert counts["brackets"][1, "normal"] == 8
    assert counts["brackets"][1, "corner"] == 4
    assert count_points(build_space().spec, degrees=(9,))["brackets"][9, "normal"] is None


@pytest.mark.parametrize("degree", [0, 1, 4])
@pytest.mark.parametrize("density", ["normal", "lowdef", "corner"])
def test_the_counts_match_the_resolved_space(degree, density):
    space = build_space(degree=degree, density=density)
    counts = count_points(space.spec, (degree,), (density,))
    assert space.points_by_task == {name: count[degree, density] for name, count in counts.items()}
    assert space.cases == 4 * len(space.points) == len(generate_items(space))


def test_point_names_match_the_published_record():
    task = {"name": "movies", "mode": "list", "params": [{"reference_count": 4, "choice_count": 3, "count": 128}]}
    item = generate_items(build_space([task]))[0]
    assert item.point.count == 128
    assert item.point.slug == "movies_choice_count-3_reference_count-4"
    assert item.key == "movies_choice_count-3_reference_count-4-0"
    assert item.metadata()["guess_chance"] == 0.3333333333333333
    assert item.metadata()["params"] == {"reference_count": 4, "choice_count": 3}


def test_more_cases_at_a_point_continue_its_stream():
    few, many = (index_items_by_key(build_space(count=count)) for count in (8, 32))
    assert len(many) == 4 * len(few) == build_space(count=32).cases
    assert few.items() <= many.items()


def test_more_points_do_not_change_items_of_other_points():
    more_tasks = [{"name": "sort"}, *TASKS]
    before, after = (index_items_by_key(build_space(tasks)) for tasks in (TASKS, more_tasks))
    assert before.items() <= after.items()
    assert len(after) == len(before) + 4


def test_cases_depend_only_on_parameters_and_seed():
    (point,) = build_space([{"name": "sort", "params": {"length": 9}}]).points
    alone = [item.case for item in generate_point(point)]
    cases = draw_cases("sort", {"length": 9})
    assert alone == [next(cases) for _ in range(4)]
    assert alone != [item.case for item in generate_point(point, seed=43)]
    assert [item.case for item in generate_point(point, start=2, stop=4)] == alone[2:]


def test_a_stored_definition_rebuilds_the_same_items():
    space = build_space(degree=1)
    stored = json.loads(json.dumps(space.definition()))
    assert rebuild_items(stored) == generate_items(space)


def test_the_hash_of_a_definition_depends_on_its_content():
    hashes = {
        build_space().definition_hash(),
        build_space(degree=1).definition_hash(),
        build_space(seed=7).definition_hash(),
    }
    assert len(hashes) == 3
    assert build_space().definition_hash() in hashes
    integer, decimal = ([{"name": "arithmetic", "params": {"prob_open": value}}] for value in (1, 1.0))
    assert build_space(integer).definition_hash() != build_space(decimal).definition_hash()


def test_a_definition_of_another_version_is_refused():
    stored = build_space().definition()
    stored["generators"][0] = stored["generators"][0] | {"version": 99}
    with pytest.raises(SpaceError, match=r"arithmetic: was built as .*99"):
        rebuild_items(stored)


def test_a_task_of_an_earlier_version_has_the_cases_of_that_version():
    old, new = (build_space([{"name": "boolean", "params": {"length": 64}} | extra]) for extra in ({"version": 1}, {}))
    assert old.definition()["generators"] == [{"task": "boolean", "version": 1}]
    assert old.points[0].identity == new.points[0].identity
    assert old.definition_hash() != new.definition_hash()
    cases = draw_cases("boolean", {"length": 64}, version=1)
    assert [item.case for item in generate_items(old)] == [next(cases) for _ in range(4)]
    assert [item.case for item in generate_items(old)] != [item.case for item in generate_items(new)]


def test_a_definition_of_an_earlier_version_rebuilds_its_items():
    space = build_space([task | {"version": 1} for task in TASKS])
    stored = json.loads(json.dumps(space.definition()))
    assert rebuild_items(stored) == generate_items(space)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([{"name": "boolean", "version": 3}], r"tasks\[0\].version: boolean has 1, 2, not 3"),
        (
            [{"name": "boolean"}, {"name": "old", "task": "boolean", "version": 1}],
            r"tasks\[1\].version: an earlier task of boolean has version 2; a space has one version",
        ),
    ],
)
def test_an_unknown_version_and_two_versions_of_a_task_are_refused(tasks, message):
    with pytest.raises(SpaceError, match=message):
        build_space(tasks)


def test_examples_differ_from_all_cases_and_each_other():
    params = {"length": 4, "kinds": 2}
    cases = draw_cases("brackets", params)
    avoid = {next(cases).input for _ in range(3)}
    examples = draw_examples("brackets", params, 2, avoid=avoid)
    assert len({case.input for case in examples}) == len(examples) == 2
    assert not avoid & {case.input for case in examples}
    assert all(get_generator("brackets").explain(case) for case in examples)


def test_a_space_with_few_different_cases_gives_fewer_examples():
    assert len(draw_examples("brackets", {"length": 1, "kinds": 2}, 5, avoid=())) == 2
