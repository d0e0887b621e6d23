"""Suggestions for unknown names: never the name itself, and no dissimilar name."""

import pytest

from evalsite.lib.text.names import did_you_mean

NAMES = ["name", "user", "max_usd", "Answer"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("usr", "did you mean user?"),
        ("max_use", "did you mean max_usd?"),
        ("name", ""),
        ("zebra", ""),
        ("", ""),
        (" ", ""),
        ("u", ""),
        ("name ", "it differs from name in white space"),
        ("Name", "it differs from name in upper and lower case"),
        (" NAME", "it differs from name in upper and lower case"),
        ("answer", "it differs from Answer in upper and lower case"),
        ("`name`", "it differs from name in quotes or invisible characters"),
        ("\ufeffname", "it differs from name in quotes or invisible characters"),
    ],
)
def test_a_hint_suggests_a_similar_name_or_states_the_difference(written, hint):
    assert did_you_mean(written, NAMES) == hint
