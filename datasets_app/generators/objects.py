"""Objects: the number of things of some categories in a list of possessions.

Specification. The input lists possessions in one sentence ("I have two apples, a red trumpet and no chairs.") and asks
for the number of things of `target_groups` categories ("How many fruits and animals do I have?"). `target_items`
different things belong to the requested categories and `distractor_count` different things to others, in random order.
The quantity of each thing is 0 to `max_count`. (If `max_count` is 0, all quantities are "no", and so is the answer.)
Each thing has an adjective with the probability `prob_adjective`; adjectives never change the category. The target is
the sum over the requested categories.

ReasonScape publishes the parameters, the sum, and distractors of quantity zero. Our choices: the vocabulary and numbers
in words. A requested category may be empty if there are fewer things than categories. No thing belongs to two
categories, and ambiguous things (a tomato) are not used. Free text has a guess chance of 0.

The target is drawn first: each number from 0 to `target_items` times `max_count` is equally likely. In version 1, the
quantities were drawn, from 1 for requested things. Most sums were in the middle; if `max_count` is 1, all were equal.
"""

from __future__ import annotations

from random import Random

from datasets_app.generators.answer_rules import INTEGER
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import join_phrases, spell_number

# For each category, the singular and plural of twelve things.
CATEGORIES: dict[str, tuple[tuple[str, str], ...]] = {
    "fruits": (
        ("apple", "apples"), ("banana", "bananas"), ("orange", "oranges"), ("peach", "peaches"), ("plum", "plums"),
        ("grape", "grapes"), ("strawberry", "strawberries"), ("pear", "pears"), ("mango", "mangoes"),
        ("cherry", "cherries"), ("lemon", "lemons"), ("pineapple", "pineapples"),
    ),
    "animals": (
        ("dog", "dogs"), ("cat", "cats"), ("rabbit", "rabbits"), ("goat", "goats"), ("donkey", "donkeys"),
        ("snail", "snails"), ("chicken", "chickens"), ("duck", "ducks"), ("frog", "frogs"), ("mouse", "mice"),
        ("cow", "cows"), ("goose", "geese"),
    ),
    "musical instruments": (
        ("trumpet", "trumpets"), ("piano", "pianos"), ("violin", "violins"), ("flute", "flutes"), ("drum", "drums"),
        ("clarinet", "clarinets"), ("accordion", "accordions"), ("trombone", "trombones"), ("guitar", "guitars"),
        ("cello", "cellos"), ("harp", "harps"), ("oboe", "oboes"),
    ),
    "vegetables": (
        ("carrot", "carrots"), ("onion", "onions"), ("potato", "potatoes"), ("cabbage", "cabbages"),
        ("turnip", "turnips"), ("radish", "radishes"), ("leek", "leeks"), ("yam", "yams"), ("parsnip", "parsnips"),
        ("artichoke", "artichokes"), ("beetroot", "beetroots"), ("lettuce", "lettuces"),
    ),
    "tools": (
        ("hammer", "hammers"), ("screwdriver", "screwdrivers"), ("wrench", "wrenches"), ("saw", "saws"),
        ("drill", "drills"), ("chisel", "chisels"), ("shovel", "shovels"), ("rake", "rakes"), ("axe", "axes"),
        ("crowbar", "crowbars"), ("mallet", "mallets"), ("pickaxe", "pickaxes"),
    ),
    "pieces of furniture": (
        ("chair", "chairs"), ("table", "tables"), ("bed", "beds"), ("couch", "couches"), ("desk", "desks"),
        ("stool", "stools"), ("bookcase", "bookcases"), ("wardrobe", "wardrobes"), ("armchair", "armchairs"),
        ("bench", "benches"), ("dresser", "dressers"), ("sideboard", "sideboards"),
    ),
    "vehicles": (
        ("car", "cars"), ("truck", "trucks"), ("bicycle", "bicycles"), ("motorcycle", "motorcycles"),
        ("tractor", "tractors"), ("bus", "buses"), ("van", "vans"), ("canoe", "canoes"), ("helicopter", "helicopters"),
        ("scooter", "scooters"), ("sailboat", "sailboats"), ("tram", "trams"),
    ),
    "articles of clothing": (
        ("shirt", "shirts"), ("hat", "hats"), ("scarf", "scarves"), ("jacket", "jackets"), ("skirt", "skirts"),
        ("sweater", "sweaters"), ("coat", "coats"), ("dress", "dresses"), ("sock", "socks"), ("glove", "gloves"),
        ("vest", "vests"), ("tie", "ties"),
    ),
}  # fmt: skip
ADJECTIVES = ("red", "blue", "green", "tiny", "huge", "old", "new", "shiny", "dusty", "heavy", "plain", "lovely")
MAX_GROUPS = 4


class ObjectsParams(Params):
    target_items: int = declare_param(4, "Number of different things to count.", harder="higher", ge=1, le=12)
    max_count: int = declare_param(5, "Largest quantity of one thing.", harder="higher", ge=0, le=99)
    distractor_count: int = declare_param(
        2, "Number of different things of other categories.", harder="higher", ge=0, le=48
    )
    target_groups: int = declare_param(1, "Number of requested categories.", harder="higher", ge=1, le=MAX_GROUPS)
    prob_adjective: float = declare_param(
        0.0, "Probability that a thing has an adjective, which changes nothing.", harder="higher", ge=0.0, le=1.0
    )


def draw(params: ObjectsParams, rng: Random) -> Case:
    rest = rng.randint(0, params.target_items * params.max_count)
    quantities = []
    for others in reversed(range(params.target_items)):
        low, high = max(0, rest - others * params.max_count), min(params.max_count, rest)
        quantities.append(rng.randint(low, high))
        rest -= quantities[-1]
    return _make_case(params, rng, quantities)


def draw_unbalanced(params: ObjectsParams, rng: Random) -> Case:
    """Return a case as version 1 drew it."""
    return _make_case(params, rng)


def _make_case(params: ObjectsParams, rng: Random, target_quantities: list[int] | None = None) -> Case:
    """Return a case with these quantities of the requested things, or with random ones."""
    categories = rng.sample(sorted(CATEGORIES), len(CATEGORIES))
    target_groups, distractor_groups = categories[: params.target_groups], categories[params.target_groups :]
    targets = rng.sample([thing for name in target_groups for thing in CATEGORIES[name]], params.target_items)
    distractors = rng.sample(
        [thing for name in distractor_groups for thing in CATEGORIES[name]], params.distractor_count
    )
    low = min(1, params.max_count)
    drawn = target_quantities or [rng.randint(low, params.max_count) for _ in targets]
    quantities = [(thing, number, True) for thing, number in zip(targets, drawn, strict=True)]
    quantities += [(thing, rng.randint(0, params.max_count), False) for thing in distractors]
    rng.shuffle(quantities)
    phrases = [_write_phrase(thing, number, params.prob_adjective, rng) for thing, number, _ in quantities]
    total = sum(number for _, number, is_target in quantities if is_target)
    question = f"I have {join_phrases(phrases)}. How many {join_phrases(target_groups)} do I have?"
    facts = {
        "target_groups": target_groups,
        "targets": {thing[1]: number for thing, number, is_target in quantities if is_target},
        "distractors": {thing[1]: number for thing, number, is_target in quantities if not is_target},
    }
    return Case(question, str(total), genresult=facts)


def _write_phrase(thing: tuple[str, str], number: int, prob_adjective: float, rng: Random) -> str:
    """Return "three dogs", "a red apple" or "no mice"."""
    noun = thing[0] if number == 1 else thing[1]
    words = f"{rng.choice(ADJECTIVES)} {noun}" if rng.random() < prob_adjective else noun
    if number != 1:
        return f"{spell_number(number)} {words}"
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def explain(case: Case) -> str:
    """Return the things of the requested categories, and their sum."""
    targets = case.genresult["targets"]
    things = ", ".join(f"{name}: {number}" for name, number in targets.items())
    total = " + ".join(str(number) for number in targets.values())
    return f"These belong to {join_phrases(case.genresult['target_groups'])}: {things}.\n{total} = {case.target}"


GENERATOR = Generator(
    name="objects",
    title="Object counting",
    version=2,
    params=ObjectsParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Count the objects that the question asks for.", "(an integer)"),
    answer=INTEGER,
)
