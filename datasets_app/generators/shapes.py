"""Shapes: the name of the shape that an SVG path draws.

Specification. The input is an SVG path element with absolute commands M, L, A and Z and coordinates to two decimals,
and lettered options. The shape has the size 20 times `scale` (the radius of its circle). It turns by up to `rotation`
degrees either way. Its centre lies up to `offset` from the origin on both axes. A polygon begins at any corner and runs
in either direction. It closes by a line to its first corner or by Z. The options are `choice_count` names, including
the right one, so a guess is correct with a probability of 1/`choice_count`.

The ten names are those of BIG-Bench's geometric shapes. A triangle and a polygon with five corners or more follow from
their corners, which are spaced unevenly. The sides of a rectangle have a ratio of at most .8. A kite has two pairs of
equal adjacent sides, and not four right angles. A sector is two radii and an arc; a circle is two half circles.

ReasonScape publishes the path, the name as the answer, and the parameters' names. Our choices: multiple choice, and all
of the geometry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Literal, get_args

from datasets_app.generators.answer_rules import LETTER, format_options, list_letters
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param

Kind = Literal[
    "any", "circle", "heptagon", "hexagon", "kite", "line", "octagon", "pentagon", "rectangle", "sector", "triangle"
]
NAMES = get_args(Kind)[1:]
CORNERS = {"triangle": 3, "pentagon": 5, "hexagon": 6, "heptagon": 7, "octagon": 8}
RADIUS = 20.0
Point = tuple[float, float]
Place = Callable[[float, float], str]


class ShapesParams(Params):
    kind: Kind = declare_param("any", "Shape to draw; polygons with many corners are harder.", harder="other")
    rotation: float = declare_param(0.0, "Largest rotation either way, in degrees.", harder="higher", ge=0.0, le=180.0)
    scale: float = declare_param(1.0, "Size of the shape, as a factor.", harder="neutral", ge=0.1, le=100.0)
    offset: float = declare_param(
        0.0, "Largest distance from the origin on each axis.", harder="higher", ge=0.0, le=10000.0
    )
    choice_count: int = declare_param(10, "Number of options.", harder="higher", ge=2, le=10)


def draw(params: ShapesParams, rng: Random) -> Case:
    kind = rng.choice(NAMES) if params.kind == "any" else params.kind
    turn = math.radians(rng.uniform(-params.rotation, params.rotation))
    centre = rng.uniform(-params.offset, params.offset), rng.uniform(-params.offset, params.offset)
    size = RADIUS * params.scale

    def place(x: float, y: float) -> str:
        """Return the SVG coordinates of a point of the unit shape, after rotation, scaling and translation."""
        across = centre[0] + size * (x * math.cos(turn) - y * math.sin(turn))
        down = centre[1] + size * (x * math.sin(turn) + y * math.cos(turn))
        return f"{_format_number(across)},{_format_number(down)}"

    path = _draw_path(kind, place, size, rng)
    distractors = rng.sample([name for name in NAMES if name != kind], params.choice_count - 1)
    options = rng.sample([kind, *distractors], params.choice_count)
    choices = list_letters(params.choice_count)
    text = f'Which shape does this SVG path element draw?\n\n<path d="{path}"/>\n\n{format_options(options)}'
    facts = {"kind": kind, "options": options, "degrees": round(math.degrees(turn), 3), "corners": CORNERS.get(kind)}
    return Case(text, choices[options.index(kind)], choices, facts)


def _format_number(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def _draw_path(kind: str, place: Place, size: float, rng: Random) -> str:
    if kind == "line":
        return f"M {place(-1, 0)} L {place(1, 0)}"
    if kind == "circle":
        arc = f"A {_format_number(size)},{_format_number(size)} 0 1,1"
        return f"M {place(-1, 0)} {arc} {place(1, 0)} {arc} {place(-1, 0)}"
    if kind == "sector":
        angle = math.radians(rng.uniform(40, 140))
        end = place(math.cos(angle), math.sin(angle))
        return f"M {place(0, 0)} L {place(1, 0)} A {_format_number(size)},{_format_number(size)} 0 0,1 {end} Z"
    # The path of a polygon from a random corner, in a random direction and with a random closing.
    corners = [place(*corner) for corner in _draw_corners(kind, rng)]
    start = rng.randrange(len(corners))
    corners = corners[start:] + corners[:start]
    if rng.random() < 0.5:
        corners.reverse()
    closing = "Z" if rng.random() < 0.5 else f"L {corners[0]}"
    return f"M {' L '.join(corners)} {closing}"


def _draw_corners(kind: str, rng: Random) -> list[Point]:
    """Return the corners of a polygon in the unit circle."""
    if kind == "rectangle":
        height = rng.uniform(0.4, 0.8)
        return [(-0.8, -0.8 * height), (0.8, -0.8 * height), (0.8, 0.8 * height), (-0.8, 0.8 * height)]
    if kind == "kite":
        top, side = rng.uniform(0.3, 0.55), rng.uniform(0.4, 0.7)
        return [(0, -top), (side, 0), (0, 1), (-side, 0)]
    count = CORNERS[kind]
    angles = [2 * math.pi * (index + rng.uniform(-0.15, 0.15)) / count for index in range(count)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def explain(case: Case) -> str:
    """Return the parts of the path, and the name of the shape."""
    kind, corners = case.genresult["kind"], case.genresult["corners"]
    special = {
        "line": "one straight line between two points",
        "circle": "two half circles of the same radius",
        "sector": "two radii and the arc between them",
        "rectangle": "four corners with right angles",
        "kite": "four corners with two pairs of equal neighbouring sides",
    }
    return f"The path has {special.get(kind, f'{corners} corners')}. That is a {kind}, option {case.target}."


GENERATOR = Generator(
    name="shapes",
    title="Shapes of SVG paths",
    version=2,
    params=ShapesParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Name the shape that the SVG path draws.", "(A) - (J)"),
    answer=LETTER,
)
