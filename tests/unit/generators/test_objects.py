"""The second solver reads the numbers and nouns of the sentence; only the categories are shared knowledge."""

import re

from datasets_app.generators.objects import ADJECTIVES, CATEGORIES
from tests.unit.generators.solving import check, generate_cases, over_points

UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
DECADES = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}


def parse_number(words):
    if words in ("a", "an"):
        return 1
    if words == "no":
        return 0
    return sum(DECADES[word] if word in DECADES else UNITS.index(word) for word in words.split("-"))


def solve(text):
    listed, category_list = re.fullmatch(r"I have (.*)\. How many (.*) do I have\?", text).groups()
    nouns = {
        noun for category in re.split(", | and ", category_list) for forms in CATEGORIES[category] for noun in forms
    }
    phrases = [phrase.split(" ") for phrase in re.split(", | and ", listed)]
    return str(sum(parse_number(words[0]) for words in phrases if words[-1] in nouns))


@over_points("objects")
def test_the_target_is_the_sum_over_the_requested_categories(values, seed):
    check("objects", solve, values, seed)


def test_categories_are_disjoint_and_no_adjective_is_a_noun():
    things = [noun for category in CATEGORIES.values() for forms in category for noun in forms]
    assert len(things) == len(set(things))
    assert not set(things) & set(ADJECTIVES)


def test_counted_things_and_distractors_may_be_missing():
    cases = generate_cases("objects", {"max_count": 2, "distractor_count": 6}, count=30)
    assert any(0 in case.genresult["distractors"].values() for case in cases)
    assert any(0 in case.genresult["targets"].values() for case in cases)


def test_the_text_has_the_requested_numbers_of_things():
    case = generate_cases("objects", {"target_items": 7, "distractor_count": 5, "target_groups": 2}, count=1)[0]
    facts = case.genresult
    assert (len(facts["targets"]), len(facts["distractors"]), len(facts["target_groups"])) == (7, 5, 2)
