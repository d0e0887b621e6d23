"""Cars: the car in which a person sits after a series of moves.

Specification. `entities` cars stand in a row, numbered from 1 at the left. Each has its own colour and brand. There are
as many people as cars, and each begins in a different car. Then `moves` moves follow, each on its own line.
`confounders` sentences that move nobody stand between them at random positions. A car holds any number of people. The
question asks for the number of one person's car at the end. A guess is correct with a probability of 1/`entities`.

`complexity` selects the kinds of moves, which are equally likely: 1 to a car by its number; 2 also some cars to the
left or right, always within the row; 3 also to a car by its colour or brand; 4 also to another person's car, or to the
car directly to the left or right of it. Each move refers to the positions after the lines above it.

ReasonScape publishes people in cars in a row, and absolute, relative, attribute and person-relative moves with
confounders. Our choices: the sentences, the number of people, and moves by number that never lead to the own car.

The target is drawn first, so that each car is equally likely: stories are drawn until somebody is in it at the end.
Version 1 asked for any person. Moves to the car next to a person lead to the outer cars less often.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from datasets_app.generators.answer_rules import INTEGER
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import PEOPLE

COLOURS = (
    "red", "blue", "green", "yellow", "white", "black", "silver", "orange", "purple", "brown", "gray", "pink",
)  # fmt: skip
BRANDS = (
    "Toyota", "Ford", "Honda", "Volvo", "Fiat", "Mazda", "Nissan", "Audi", "Skoda", "Subaru", "Kia", "Renault",
)  # fmt: skip


class CarsParams(Params):
    entities: int = declare_param(4, "Number of people, and of cars.", harder="higher", ge=2, le=12)
    moves: int = declare_param(4, "Number of moves.", harder="higher", ge=1, le=100)
    complexity: int = declare_param(
        2, "Kinds of moves: 1 number, 2 also left or right, 3 also colour or brand, 4 also people.", harder="higher",
        ge=1, le=4,
    )  # fmt: skip
    confounders: int = declare_param(0, "Number of sentences that move nobody.", harder="higher", ge=0, le=100)


class CarRow(NamedTuple):
    """The cars of a case from left to right, and the place of each person. Places count from 0."""

    colours: list[str]
    brands: list[str]
    people: dict[str, int]


def draw(params: CarsParams, rng: Random) -> Case:
    target = rng.randrange(params.entities)
    while True:
        row, story, trace = _draw_story(params, rng)
        if subjects := [person for person, place in row.people.items() if place == target]:
            return _make_case(row, story, trace, rng.choice(subjects))


def draw_unbalanced(params: CarsParams, rng: Random) -> Case:
    """Return a case as version 1 drew it."""
    row, story, trace = _draw_story(params, rng)
    return _make_case(row, story, trace, rng.choice(list(row.people)))


def _draw_story(params: CarsParams, rng: Random) -> tuple[CarRow, list[str], list[list[Any]]]:
    """Return the row with the places at the end, the lines of the story, and the place after each move."""
    number = params.entities
    people = rng.sample(PEOPLE, number)
    places = rng.sample(range(number), number)
    row = CarRow(rng.sample(COLOURS, number), rng.sample(BRANDS, number), dict(zip(people, places, strict=True)))
    cars = [f"Car {index + 1} is the {row.colours[index]} {row.brands[index]}." for index in range(number)]
    seats = [f"{person} sits in car {place + 1}." for person, place in row.people.items()]
    kinds = (_move_by_number, _move_by_distance, _move_by_attribute, _move_by_person)[: params.complexity]
    lines: list[str] = []
    trace: list[list[Any]] = []
    for _ in range(params.moves):
        person = rng.choice(people)
        sentence, place = rng.choice(kinds)(row, person, rng)
        row.people[person] = place
        lines.append(f"{person} {sentence}.")
        trace.append([person, place + 1])
    for _ in range(params.confounders):
        lines.insert(rng.randint(0, len(lines)), _draw_distractor(row, people, rng))
    opening = f"{number} cars stand in a row and have the numbers 1 to {number} from left to right. {' '.join(cars)}"
    return row, [opening, " ".join(seats), *lines], trace


def _make_case(row: CarRow, story: list[str], trace: list[list[Any]], subject: str) -> Case:
    text = "\n".join([*story, f"What is the number of the car that {subject} is in at the end?"])
    choices = tuple(str(place + 1) for place in range(len(row.colours)))
    return Case(text, choices[row.people[subject]], choices, {"asked": subject, "trace": trace})


def _move_by_number(row: CarRow, person: str, rng: Random) -> tuple[str, int]:
    place = rng.choice([other for other in range(len(row.colours)) if other != row.people[person]])
    return f"moves to car {place + 1}", place


def _move_by_distance(row: CarRow, person: str, rng: Random) -> tuple[str, int]:
    current = row.people[person]
    place = rng.choice([other for other in range(len(row.colours)) if other != current])
    distance = abs(place - current)
    cars = "1 car" if distance == 1 else f"{distance} cars"
    return f"moves {cars} to the {'left' if place < current else 'right'}", place


def _move_by_attribute(row: CarRow, person: str, rng: Random) -> tuple[str, int]:
    place = rng.randrange(len(row.colours))
    return f"moves to the {row.brands[place] if rng.random() < 0.5 else f'{row.colours[place]} car'}", place


def _move_by_person(row: CarRow, person: str, rng: Random) -> tuple[str, int]:
    passenger = rng.choice([name for name in row.people if name != person])
    passenger_place = row.people[passenger]
    sides = [(0, "")]
    sides += [(-1, "directly to the left of ")] if passenger_place > 0 else []
    sides += [(1, "directly to the right of ")] if passenger_place < len(row.colours) - 1 else []
    step, side = rng.choice(sides)
    car = f"{side}{passenger}" if side else f"that {passenger} is in"
    return f"moves to the car {car}", passenger_place + step


def _draw_distractor(row: CarRow, people: list[str], rng: Random) -> str:
    """Return a sentence that moves nobody."""
    person, companion = rng.sample(people, 2)
    place = rng.randrange(len(row.colours))
    return rng.choice((
        f"{person} opens a window.",
        f"{person} waves to {companion}.",
        f"{person} thinks about car {place + 1}, but stays.",
        f"The {row.brands[place]} gets a new number plate.",
        f"{person} remembers that {companion} once drove the {row.colours[place]} car.",
        f"{person} asks {companion} for the time.",
    ))  # fmt: skip


def explain(case: Case) -> str:
    """Return the number of the person's car after each move."""
    lines = [f"{person} is now in car {place}." for person, place in case.genresult["trace"]]
    return "\n".join([*lines, f"At the end, {case.genresult['asked']} is in car {case.target}."])


GENERATOR = Generator(
    name="cars",
    title="People in cars",
    version=2,
    params=CarsParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=Instructions(
        "Follow the moves in the order of the lines, and give the number of the car.", "(an integer)"
    ),
    answer=INTEGER,
)
