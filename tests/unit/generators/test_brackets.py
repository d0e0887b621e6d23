"""The second solver deletes adjacent pairs from the text until only open brackets are left."""

import re

from tests.unit.generators.solving import check, generate_cases, over_points


def solve(text):
    remaining, before = text.replace(" ", ""), None
    while remaining != before:
        before, remaining = remaining, re.sub(r"\(\)|\[\]|\{\}|<>", "", remaining)
    return " ".join(remaining[::-1].translate(str.maketrans("([{<", ")]}>")))


@over_points("brackets")
def test_the_target_closes_the_text(values, seed):
    check("brackets", solve, values, seed)


def test_the_text_has_at_most_the_requested_depth_and_leaves_brackets_open():
    for case in generate_cases(
        "brackets", {"length": 50, "max_depth": 3, "kinds": 2, "close_weight_multiplier": 0.1}, count=9
    ):
        words = case.input.split()
        assert len(words) == 50
        assert set(words) <= set("()[]")
        depths = [sum(1 if word in "([" else -1 for word in words[: index + 1]) for index in range(50)]
        assert max(depths) == 3
        assert min(depths) >= 0
        assert case.target


def test_an_answer_without_spaces_is_also_correct():
    from datasets_app.generators.registry import get_generator

    rule = get_generator("brackets").answer
    assert rule.is_correct(rule.read("Final Answer: `]})`"), "] } )")
    assert not rule.is_correct(rule.read("Final Answer: ] ) }"), "] } )")
