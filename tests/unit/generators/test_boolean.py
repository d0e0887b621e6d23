"""The second solver rewrites the text until one truth value is left."""

import re

from tests.unit.generators.solving import check, generate_cases, over_points

NOTATIONS = [("True", "False"), ("T", "F"), ("ON", "OFF"), ("1", "0"), ("YES", "NO")]


def solve(text):
    words = set(re.findall(r"\w+", text)) - {"not", "and", "or"}
    true, false = next(pair for pair in NOTATIONS if words <= set(pair))
    reduced = " ".join({true: "+", false: "~"}.get(word, word) for word in re.findall(r"\w+|[()]", text))
    while len(reduced) > 1:
        reduced, count = rewrite_once(reduced)
        assert count, reduced
    return {"+": true, "~": false}[reduced]


def rewrite_once(text):
    """Apply the first rule that fits: groups of one value, then not, then and, then or within a group."""
    for pattern, replacement in [
        (r"\( ([+~]) \)", lambda match: match[1]),
        (r"not ([+~])", lambda match: "~" if match[1] == "+" else "+"),
        (r"([+~]) and ([+~])", lambda match: "+" if match[0] == "+ and +" else "~"),
        (r"(?<!and )(?<!not )([+~]) or ([+~])(?! and)", lambda match: "~" if match[0] == "~ or ~" else "+"),
    ]:
        text, count = re.subn(pattern, replacement, text, count=1)
        if count:
            return text, count
    return text, 0


@over_points("boolean")
def test_the_target_is_the_value_of_the_text(values, seed):
    check("boolean", solve, values, seed)


def test_a_format_can_be_selected_by_number():
    numbered, named = (generate_cases("boolean", {"format": name}, count=5) for name in (2, "ON_OFF"))
    assert [case.input for case in numbered] == [case.input for case in named]
    assert all(case.choices == ("ON", "OFF") for case in named)


def test_both_values_occur_as_targets():
    assert {case.target for case in generate_cases("boolean", {}, count=40)} == {"True", "False"}
