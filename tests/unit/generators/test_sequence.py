"""The second solver reads the rules line by line and applies them until the term asked for."""

import re

from tests.unit.generators.solving import check, generate_cases, over_points


def solve(text):
    head, *rules, question = text.split("\n")
    terms = [int(number) for number in re.findall(r"\d+", head)]
    first_terms, term_number = re.fullmatch(
        r"The first 3 terms are (.*)\. What is term number (\d+)\?", question
    ).groups()
    while len(terms) < int(term_number):
        value = None
        for rule in rules:
            value = apply(rule.split(". ", 1)[1], terms, value)
        terms.append(value)
    assert [int(term) for term in first_terms.split(", ")] == terms[:3]
    return str(terms[-1])


def apply(rule, terms, value):
    if not rule.startswith("If"):
        number = int((re.findall(r"\d+", rule) or [0])[0])
        if rule.startswith("Multiply"):
            return terms[-1] * number
        if "two terms" in rule:
            return terms[-1] + terms[-2]
        return terms[-1] + number * (len(terms) + 1 if "times the position" in rule else 1)
    condition, verb, change = re.fullmatch(r"If (.*), (add|subtract) (\d+)\.", rule).groups()
    subject = len(terms) + 1 if "position" in condition else value
    divisor = int((re.findall(r"divisible by (\d)", condition) or [2])[0])
    holds = (subject % divisor == 0) != condition.endswith("odd")
    return value + (int(change) if verb == "add" else -int(change)) * holds


@over_points("sequence")
def test_the_target_is_the_term_that_the_rules_give(values, seed):
    check("sequence", solve, values, seed)


def test_the_text_has_one_line_for_each_rule():
    for count in range(5):
        case = generate_cases("sequence", {"interference": count}, count=1)[0]
        assert len(case.input.split("\n")) == count + 3
