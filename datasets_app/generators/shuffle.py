"""Shuffle: the thing that a person holds after a series of swaps.

Specification. `length` people each hold one thing of the `domain`. Then `max_depth` swaps follow, each between two
people. `confounding_count` sentences of gossip, which change nothing, stand between them at random positions. The
question asks for the thing of one person at the end; all things are lettered options. The target is a letter, so a
guess is correct with a probability of 1/`length`.

Every sentence about a swap or gossip is an event on its own line. `anchors` selects the labels of events: NONE no
label; NUMERIC 1. 2. 3.; ASCII * - + in turn; ROMAN I. II. III.; ALPHA A. B. ... Z. AA.; SKIP_2 2. 4. 6.; REVERSE counts
down to 1.; HEX 0x1. 0x2.; ELEMENTS H. He. Li. (starting again after xenon). Events always happen in the order of the
lines.

ReasonScape publishes the parameters, the domains' names and the names of the anchors. Our choices: the sentences, the
lettered options, the labels on events, and reading `max_depth` as the exact number of swaps. `anchors` may be the name
or ReasonScape's number, 0 to 8.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal, NamedTuple, get_args

from pydantic import field_validator

from datasets_app.generators.answer_rules import LETTER, format_options, list_letters
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import PEOPLE, join_phrases

Anchors = Literal["NONE", "NUMERIC", "ASCII", "ROMAN", "ALPHA", "SKIP_2", "REVERSE", "HEX", "ELEMENTS"]
MAX_PEOPLE = 16


class Domain(NamedTuple):
    """The sentences of one domain, with the placeholders `{people}`, `{who}`, `{thing}`, `{a}` and `{b}`."""

    opening: str
    start: str
    swap: str
    question: str
    things: tuple[str, ...]


DOMAINS: dict[str, Domain] = {
    "dancing": Domain(
        "{people} are dancers at a square dance.",
        "{who} is dancing with {thing}",
        "{a} and {b} switch partners.",
        "At the end of the dance, who is {who} dancing with?",
        (
            "Lola", "Rodrigo", "Patrick", "Sam", "Melissa", "Jamie", "Ophelia", "Helga", "Karl", "Izzi", "Lara",
            "Benji", "Marta", "Nadia", "Oscar", "Perla",
        ),
    ),
    "books": Domain(
        "{people} are members of a book club.",
        "{who} has {thing}",
        "{a} and {b} swap books.",
        "At the end, which book does {who} have?",
        (
            "Ulysses", "Frankenstein", "Moby Dick", "The Odyssey", "Hamlet", "Catch-22", "Lolita", "Dracula", "Emma",
            "The Iliad", "Beloved", "Candide", "Persuasion", "Middlemarch", "Dune", "Walden",
        ),
    ),
    "soccer": Domain(
        "{people} are on the same team in a soccer match.",
        "{who} is playing {thing}",
        "{a} and {b} trade positions.",
        "At the end of the match, which position is {who} playing?",
        (
            "goalkeeper", "striker", "left winger", "right winger", "center midfielder", "left midfielder",
            "right midfielder", "center back", "left back", "right back", "sweeper", "playmaker", "libero",
            "second striker", "defensive midfielder", "attacking midfielder",
        ),
    ),
    "gifts": Domain(
        "{people} are holding a gift exchange.",
        "{who} has the {thing} present",
        "{a} and {b} swap their gifts.",
        "At the end of the event, which present does {who} have?",
        (
            "red", "blue", "green", "yellow", "white", "black", "purple", "orange", "pink", "brown", "golden",
            "silver", "gray", "striped", "dotted", "checkered",
        ),
    ),
    "balls": Domain(
        "{people} are playing a game.",
        "{who} has the {thing} ball",
        "{a} and {b} swap balls.",
        "At the end of the game, which ball does {who} have?",
        (
            "red", "blue", "green", "yellow", "white", "black", "purple", "orange", "pink", "brown", "golden",
            "silver", "gray", "striped", "dotted", "checkered",
        ),
    ),
}  # fmt: skip
GOSSIP = (
    "{a} tells {b} a joke.",
    "{a} and {b} think about a swap, but decide against it.",
    "{a} waves to {b}.",
    "{a} asks {b} for the time.",
    "{a} hears that {b} is moving to another town.",
    "{a} and {b} talk about the weather.",
    "{a} remembers a swap with {b} of last year.",
    "{a} admires the shoes of {b}.",
)
ELEMENTS = (
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K", "Ca", "Sc",
    "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y", "Zr",
    "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe",
)  # fmt: skip
NUMERALS = ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


class ShuffleParams(Params):
    length: int = declare_param(3, "Number of people.", harder="higher", ge=3, le=MAX_PEOPLE)
    max_depth: int = declare_param(3, "Number of swaps.", harder="higher", ge=1, le=100)
    confounding_count: int = declare_param(0, "Number of sentences that change nothing.", harder="higher", ge=0, le=100)
    domain: Literal["dancing", "books", "soccer", "gifts", "balls"] = declare_param(
        "dancing", "Subject of the story.", harder="neutral"
    )
    anchors: Anchors = declare_param(
        "NONE", "Labels of the events; labels out of the usual order are harder.", harder="other"
    )

    @field_validator("anchors", mode="before")
    @classmethod
    def _convert_number(cls, value: Any) -> Any:
        names = get_args(Anchors)
        return names[value] if type(value) is int and 0 <= value < len(names) else value


def draw(params: ShuffleParams, rng: Random) -> Case:
    domain = DOMAINS[params.domain]
    people = rng.sample(PEOPLE, params.length)
    things = rng.sample(domain.things, params.length)
    swaps = [tuple(rng.sample(people, 2)) for _ in range(params.max_depth)]
    possessions = dict(zip(people, things, strict=True))
    trace = []
    for a, b in swaps:
        possessions[a], possessions[b] = possessions[b], possessions[a]
        trace.append([a, possessions[a], b, possessions[b]])
    person = rng.choice(people)
    options = rng.sample(things, len(things))
    choices = list_letters(len(options))
    starts = [domain.start.format(who=owner, thing=thing) for owner, thing in zip(people, things, strict=True)]
    text = "\n".join([
        f"{domain.opening.format(people=join_phrases(people))} At the start, {join_phrases(starts)}.",
        *_write_events(domain, swaps, people, params, rng),
        f"{domain.question.format(who=person)}\n\n{format_options(options)}",
    ])  # fmt: skip
    facts = {"asked": person, "start": dict(zip(people, things, strict=True)), "trace": trace, "options": options}
    return Case(text, choices[options.index(possessions[person])], choices, facts)


def _write_events(
    domain: Domain, swaps: list[tuple[str, ...]], people: list[str], params: ShuffleParams, rng: Random
) -> list[str]:
    """Return the labelled lines: the swaps in order, with gossip at random positions."""
    lines = [domain.swap.format(a=a, b=b) for a, b in swaps]
    for _ in range(params.confounding_count):
        a, b = rng.sample(people, 2)
        lines.insert(rng.randint(0, len(lines)), rng.choice(GOSSIP).format(a=a, b=b))
    return [f"{write_label(params.anchors, index, len(lines))}{line}" for index, line in enumerate(lines)]


def write_label(anchors: str, index: int, total: int) -> str:
    """Return the label of an event, with a space at the end. `index` counts from 0."""
    labels = {
        "NONE": "",
        "NUMERIC": f"{index + 1}. ",
        "ASCII": f"{'*-+'[index % 3]} ",
        "ROMAN": f"{_format_roman(index + 1)}. ",
        "ALPHA": f"{_format_alphabetic(index)}. ",
        "SKIP_2": f"{2 * (index + 1)}. ",
        "REVERSE": f"{total - index}. ",
        "HEX": f"{index + 1:#x}. ",
        "ELEMENTS": f"{ELEMENTS[index % len(ELEMENTS)]}. ",
    }
    return labels[anchors]


def _format_roman(number: int) -> str:
    text = ""
    for value, numeral in NUMERALS:
        text += numeral * (number // value)
        number %= value
    return text


def _format_alphabetic(index: int) -> str:
    """Return the letters of an index from 0, as for spreadsheet columns: A, B, ... Z, AA, AB."""
    text = ""
    while index >= 0:
        text = chr(ord("A") + index % 26) + text
        index = index // 26 - 1
    return text


def explain(case: Case) -> str:
    """Return the two people's things after each swap."""
    facts = case.genresult
    lines = [f"{a} and {b} swap: {a}: {first}, {b}: {second}." for a, first, b, second in facts["trace"]]
    end = facts["options"][case.choices.index(case.target)] if case.choices else ""
    return "\n".join([*lines, f"At the end, {facts['asked']}: {end}, option {case.target}."])


GENERATOR = Generator(
    name="shuffle",
    title="Tracking shuffled objects",
    version=2,
    params=ShuffleParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Follow the swaps in the order of the lines, and choose the right option.", "(A) - (Z)"),
    answer=LETTER,
)
