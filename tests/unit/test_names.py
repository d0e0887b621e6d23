"""Names that people give for choices: each key and each unique name finds its choice, and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.text.names import NamedChoice, UnknownNameError, find_named

CHOICES = [
    NamedChoice("first", "g4", ("strict-judge (correctness@1)", "strict-judge")),
    NamedChoice("second", "g5", ("mild-judge (correctness@1)", "mild-judge", "Strict-Judge")),
    NamedChoice("third", "exact_match", ("exact match with the target",)),
]
TEXTS = st.text("ab_ A", min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("g4", "first"),
        ("strict-judge", "first"),
        ("Strict-Judge", "second"),
        ("strict-judge (correctness@1)", "first"),
        ("  MILD-judge  (correctness@1)", "second"),
        ("Exact match", "third"),
    ],
)
def test_a_choice_goes_by_its_key_or_a_name(name, value):
    assert find_named(name, CHOICES, "measure") == value


def test_an_unknown_name_is_an_error_that_lists_the_choices():
    with pytest.raises(UnknownNameError) as caught:
        find_named("bleu", CHOICES, "measure")
    assert str(caught.value) == (
        'there is no measure bleu; existing measures: g4 "strict-judge (correctness@1)", '
        'g5 "mild-judge (correctness@1)", exact_match "exact match with the target"'
    )


def test_an_ambiguous_name_is_an_error_that_lists_its_choices():
    with pytest.raises(UnknownNameError) as caught:
        find_named("STRICT-JUDGE", CHOICES, "measure")
    assert "several measures: g4" in str(caught.value)
    assert "exact_match" not in str(caught.value)


@given(st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), min_size=1, max_size=5), TEXTS)
def test_only_a_choice_with_the_name_is_found(names_by_key, name):
    choices = [NamedChoice(key, key, tuple(names)) for key, names in names_by_key.items()]
    exact = [key for key, names in names_by_key.items() if name in names]
    try:
        found = find_named(name, choices, "choice")
    except UnknownNameError:
        assert name not in names_by_key
        assert len(exact) != 1
        return
    if name in names_by_key:
        assert found == name
    elif exact:
        assert [found] == exact
    else:
        folded = {" ".join(text.replace("_", " ").split()).casefold() for text in (found, *names_by_key[found])}
        assert " ".join(name.replace("_", " ").split()).casefold() in folded
