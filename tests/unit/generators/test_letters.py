"""The second solver removes the named letters from the words and counts the removed letters."""

import re

from tests.unit.generators.solving import check, generate_cases, over_points


def solve(text):
    question, words = re.fullmatch(r"(.*) occur in these words: (.*)\?", text).groups()
    letters = "".join(re.findall(r'"(.)"', question))
    return str(len(words) - len(re.sub(f"[{letters}]", "", words)))


@over_points("letters")
def test_the_target_counts_the_letters_of_the_text(values, seed):
    check("letters", solve, values, seed)


def test_confounders_contain_no_counted_letter_and_other_words_contain_one():
    for case in generate_cases(
        "letters", {"words": 5, "confounders": 3, "target_letters": 2, "rarity": "rare"}, count=20
    ):
        letters = set(case.genresult["letters"])
        assert letters <= set("fjkqvwxz")
        assert sorted(bool(letters & set(word)) for word in case.genresult["words"]) == [False] * 3 + [True] * 5
