"""The second solver follows the object backwards from its last holder to its first."""

import re

import pytest

from datasets_app.generators.shuffle import write_label
from tests.unit.generators.solving import check, generate_cases, over_points

DONE = "switch partners|swap books|trade positions|swap their gifts|swap balls"
SWAP = re.compile(rf"(?:^|[ .])([A-Z][a-z]+) and ([A-Z][a-z]+) (?:{DONE})\.$")
NEXT = r"(?:,| and) [A-Z][a-z]+ (?:is|has) "
START = r"{who} (?:is dancing with|has the|has|is playing) (.+?)(?: present| ball)?(?:" + NEXT + r"|\.$)"


def solve(text):
    story, options = text.split("\n\nOptions:\n")
    opening, *events, question = story.split("\n")
    person = re.search(r"(?:is|does) ([A-Z][a-z]+) (?:dancing|have|playing)", question)[1]
    for event in reversed(events):
        if swap := SWAP.search(event):
            a, b = swap.groups()
            person = {a: b, b: a}.get(person, person)
    starts = opening.partition("At the start, ")[2]
    thing = re.search(START.format(who=person), starts)[1]
    by_option = {text: letter for letter, text in (line.split(" ", 1) for line in options.split("\n"))}
    return by_option[thing]


@over_points("shuffle")
def test_the_target_is_the_thing_after_all_swaps(values, seed):
    check("shuffle", solve, values, seed)


def test_the_text_has_the_requested_swaps_and_gossip():
    case = generate_cases("shuffle", {"length": 5, "max_depth": 7, "confounding_count": 4, "domain": "balls"}, count=1)[
        0
    ]
    events = case.input.split("\n\n")[0].split("\n")[1:-1]
    assert sum(bool(SWAP.search(event)) for event in events) == 7
    assert len(events) == 11


@pytest.mark.parametrize(
    ("anchors", "labels"),
    [
        ("NONE", ["", "", ""]),
        ("NUMERIC", ["1. ", "2. ", "3. "]),
        ("ASCII", ["* ", "- ", "+ "]),
        ("ROMAN", ["I. ", "II. ", "III. "]),
        ("ALPHA", ["A. ", "B. ", "C. "]),
        ("SKIP_2", ["2. ", "4. ", "6. "]),
        ("REVERSE", ["3. ", "2. ", "1. "]),
        ("HEX", ["0x1. ", "0x2. ", "0x3. "]),
        ("ELEMENTS", ["H. ", "He. ", "Li. "]),
    ],
)
def test_events_are_labelled_by_their_anchors(anchors, labels):
    assert [write_label(anchors, index, 3) for index in range(3)] == labels


def test_labels_continue_after_the_alphabet_and_after_nine():
    assert write_label("ALPHA", 26, 99) == "AA. "
    assert write_label("ROMAN", 48, 99) == "XLIX. "
    assert write_label("HEX", 15, 99) == "0x10. "
