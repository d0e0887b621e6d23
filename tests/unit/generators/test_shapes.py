"""The second solver measures the path: its commands, its distinct corners, its angles and its sides."""

import math
import re

from datasets_app.generators.shapes import NAMES
from tests.unit.generators.solving import check, generate_cases, over_points

POINT = r"(-?\d+\.\d\d),(-?\d+\.\d\d)"


def solve(text):
    path = re.search(r' d="(.*)"', text)[1]
    options = dict((name, letter) for letter, name in re.findall(r"^(\(\w\)) (\w+)$", text, re.MULTILINE))
    return options[name_shape(path)]


def name_shape(path):
    if "A" in path:
        return "sector" if "L" in path else "circle"
    corners = []
    for x, y in re.findall(POINT, path):
        if (float(x), float(y)) not in corners:
            corners.append((float(x), float(y)))
    many = {2: "line", 3: "triangle", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon"}
    if len(corners) != 4:
        return many[len(corners)]
    sides = [math.dist(corner, corners[index - 1]) for index, corner in enumerate(corners)]
    if max(abs(compute_cosine(corners, index)) for index in range(4)) < 0.02:
        return "rectangle"
    uneven = min(abs(sides[index] - sides[index - 1]) + abs(sides[index - 2] - sides[index - 3]) for index in (0, 1))
    assert uneven < 0.02 * max(sides) + 0.05
    return "kite"


def compute_cosine(corners, at):
    (x, y), before, after = corners[at], corners[at - 1], corners[(at + 1) % 4]
    first, second = (before[0] - x, before[1] - y), (after[0] - x, after[1] - y)
    return (first[0] * second[0] + first[1] * second[1]) / (math.hypot(*first) * math.hypot(*second))


@over_points("shapes")
def test_the_target_names_the_shape_of_the_path(values, seed):
    check("shapes", solve, values, seed, count=4)


def test_every_shape_occurs_and_a_fixed_kind_excludes_others():
    assert {case.genresult["kind"] for case in generate_cases("shapes", {}, count=200)} == set(NAMES)
    assert {case.genresult["kind"] for case in generate_cases("shapes", {"kind": "kite"}, count=20)} == {"kite"}


def test_without_rotation_and_offset_a_rectangle_is_upright_around_the_origin():
    for case in generate_cases("shapes", {"kind": "rectangle"}, count=5):
        points = [(abs(float(x)), abs(float(y))) for x, y in re.findall(POINT, case.input)]
        assert len(set(points)) == 1


def test_scale_and_offset_move_and_enlarge_the_shape():
    values = {"kind": "circle", "scale": 5.0, "offset": 1000.0}
    cases = generate_cases("shapes", values, count=10)
    assert all("A 100.00,100.00" in case.input for case in cases)
    assert len({re.search(POINT, case.input)[0] for case in cases}) == 10
