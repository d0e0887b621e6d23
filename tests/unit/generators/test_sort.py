"""The second solver inserts one word after another into a list, with its own comparison of letters."""

from tests.unit.generators.solving import check, generate_cases, over_points


def is_before(first, second):
    for one, other in zip(first, second, strict=False):
        if one != other:
            return one < other
    return len(first) < len(second)


def solve(text):
    ordered = []
    for word in text.lower().split(" "):
        place = sum(not is_before(word, other) for other in ordered)
        ordered.insert(place, word)
    return " ".join(ordered)


@over_points("sort")
def test_the_target_is_the_words_in_order(values, seed):
    check("sort", solve, values, seed)


def test_long_runs_give_words_with_equal_beginnings():
    def firsts(run_length):
        cases = generate_cases("sort", {"length": 40, "run_length": run_length, "prob_duplication": 0.0}, count=10)
        return sum(len({word[:2] for word in case.target.split()}) for case in cases)

    assert firsts(40) < firsts(1) / 2


def test_probabilities_of_zero_give_lowercase_words_without_repeats():
    for case in generate_cases(
        "sort", {"length": 30, "prob_mutation": 0.0, "prob_duplication": 0.0, "run_length": 5}, count=5
    ):
        assert case.input == case.input.lower()
        assert case.genresult["mutated"] == 0
