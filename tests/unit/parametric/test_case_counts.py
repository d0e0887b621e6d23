"""The plan of a space names points with too few different cases, and points with one answer."""

from datasets_app.parametric.items import describe_gaps, generate_point, survey_point
from tests.unit.parametric.test_points_and_items import build_space

SMALL = {"name": "small", "task": "sequence", "params": {"base": "multiply", "interference": 0, "length": 5}}


def test_a_point_with_fewer_cases_than_requested_is_named_with_its_number():
    assert describe_gaps(build_space([SMALL], count=32)) == [
        "1 point with fewer different cases than requested; each is built once: "
        "sequence_base-multiply_interference-0_length-5 (18 of 32)"
    ]
    assert describe_gaps(build_space([SMALL], count=18)) == []


def test_the_survey_has_the_number_of_cases_that_a_build_gives():
    space = build_space([SMALL, {"name": "brackets", "params": {"length": [1, 2, 5, 12]}}], count=60)
    built = [len(list(generate_point(point))) for point in space.points]
    assert [survey_point(point, space.seed).n for point in space.points] == built == [18, 3, 9, 60, 60]


def test_a_point_with_one_answer_is_named_with_the_answer():
    (line,) = describe_gaps(build_space([{"name": "objects", "params": {"max_count": [0, 1]}}], count=30))
    assert line == "1 point with one right answer for most cases: objects_max_count-0 ('0': 100%)"


def test_questions_with_choices_have_no_frequent_answer():
    assert survey_point(build_space([{"name": "boolean"}]).points[0], 42).share == 0


def test_repeated_cases_of_version_1_are_named():
    (line,) = describe_gaps(build_space([SMALL | {"version": 1}], count=32))
    assert line.startswith("1 point with repeated cases, as in the version of the task: sequence_")
    assert line.endswith("of 32 differ)")


def test_only_the_first_points_of_a_large_space_are_drawn():
    space = build_space([{"name": "brackets", "params": {"length": [1, 2, 3], "kinds": 1}}], count=30)
    assert describe_gaps(space, 1)[0].startswith("1 point of the first 1 with fewer different cases")
