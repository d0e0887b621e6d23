import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.wilson import wilson
from grading_app.analysis import statistics
from runs_app.stopping import StoppingRule, Tally

RULE = StoppingRule(maximum=512, targetci=0.09, targetciht=0.06, abortht=0.5, backoffht=0.15, minci=0.04)


def test_there_is_one_wilson():
    assert statistics.wilson is wilson


def test_96_of_128_are_known_to_within_7_43_points():
    # Wilson's half-width of 96 of 128 at 95 % is .07427.
    known = StoppingRule(maximum=512, targetci=0.0743).decide(Tally(96, 128))
    unknown = StoppingRule(maximum=512, targetci=0.0742).decide(Tally(96, 128))
    assert (known.kind, unknown.kind) == ("enough", "more")
    assert round(known.half_width, 5) == 0.07427
    assert known.reason == "the interval is ±0.0743 after 128 cases, within ±0.0743"
    assert unknown.reason == "the interval is ±0.0743 after 128 cases, wanted ±0.0742"


def test_guesses_are_taken_off_both_counts():
    # Four choices each: 32 of 128 by guessing, so 64 of 96.
    tally = Tally(96, 128, guess_chances=32)
    assert tally.interval() == wilson(64, 96)
    assert Tally(10, 128, guess_chances=32).interval() == wilson(0, 96)
    assert Tally(5, 8, guess_chances=8).interval() is None
    assert RULE.decide(Tally(5, 8, guess_chances=8)).reason == (
        "nothing is known beyond guessing after 8 cases, wanted ±0.09"
    )


@pytest.mark.parametrize(
    ("tally", "kind", "told"),
    [
        (Tally(0, 0), "more", "nothing has been asked yet"),
        (Tally(16, 32), "more", "the interval is ±0.1637 after 32 cases, wanted ±0.09"),
        (Tally(32, 32), "enough", "the interval is ±0.0536 after 32 cases, within ±0.09"),
        # 20 of 116 cut off is 17.2 %: the stricter half-width is wanted; 10 of 106 is 9.4 %.
        (Tally(87, 96, truncated=20), "more", "the interval is ±0.0593 after 116 cases, wanted ±0.05"),
        (Tally(87, 96, truncated=10), "enough", "the interval is ±0.0593 after 106 cases, within ±0.09"),
        (Tally(15, 15, truncated=17), "abort", "17 of 32 answers were cut off (53.1%), above the 50.0% to give up at"),
        (Tally(16, 16, truncated=16), "more", "wanted ±0.05"),
        (Tally(0, 0, truncated=32), "abort", "32 of 32 answers were cut off (100.0%)"),
        (
            Tally(150, 300, truncated=212),
            "enough",
            "the interval is ±0.0562 after 512 cases, the maximum; wanted ±0.05",
        ),
    ],
)
def test_a_round_is_followed_by_what_its_counts_say(tally, kind, told):
    rule = StoppingRule(maximum=512, targetci=0.09, targetciht=0.05, abortht=0.5, backoffht=0.15, minci=0.04)
    found = rule.decide(tally)
    assert (found.kind, told in found.reason) == (kind, True), found.reason


def test_no_half_width_below_minci_is_asked_for():
    rule = StoppingRule(maximum=10_000, targetci=0.05, targetciht=0.01, backoffht=0.1, minci=0.03)
    assert (rule.target(0.1), rule.target(0.11)) == (0.05, 0.03)


def test_without_a_half_width_one_round_is_enough():
    assert StoppingRule(maximum=512).decide(Tally(1, 32)).kind == "enough"
    assert StoppingRule(maximum=512, abortht=0.1).decide(Tally(1, 32, truncated=32)).kind == "abort"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"targetci": 9}, "targetci lies between 0 and 1, not at 9"),
        ({"abortht": -0.1}, "abortht lies"),
        ({"maximum": 0}, "at least one case"),
        ({"targetciht": 0.1}, "come together"),
        ({"backoffht": 0.1}, "come together"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        StoppingRule(**{"maximum": 512, **options})


@pytest.mark.parametrize("counts", [(2, 1), (-1, 1), (1, 1, -1), (1, 1, 0, 2), (1, 1, 0, -1)])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(ValueError, match="no tally"):
        Tally(*counts)


@given(st.integers(0, 600), st.data())
def test_every_point_ends_by_its_maximum(total, data):
    correct, truncated = data.draw(st.integers(0, total)), data.draw(st.integers(0, 600))
    decision = RULE.decide(Tally(correct, total, truncated, data.draw(st.floats(0, total))))
    assert decision.kind != "more" or total + truncated < RULE.maximum
    if truncated > 0.5 * (total + truncated):
        assert decision.kind == "abort"


def point(draw, rule, skill, guess):
    """The tally of a point at its stop, in rounds of 32."""
    correct = total = 0
    while True:
        correct += sum(draw.random() < skill + (1 - skill) * guess for _ in range(32))
        total += 32
        tally = Tally(correct, total, guess_chances=guess * total)
        if rule.decide(tally).kind == "enough":
            return tally


@pytest.mark.parametrize(
    ("skill", "guess", "documented"), [(0.5, 0, 0.961), (0.75, 0, 0.941), (0.9, 0.25, 0.975), (0.25, 0.25, 0.838)]
)
def test_the_interval_at_the_stop_covers_as_often_as_is_documented(skill, guess, documented):
    # 1,000 points: four standard errors of .95 are .028, of .84 .046.
    draw, rule = random.Random(7), StoppingRule(maximum=512, targetci=0.09)
    intervals = [point(draw, rule, skill, guess).interval() for _ in range(1000)]
    covered = sum(one.low <= skill <= one.high for one in intervals) / 1000
    assert covered == pytest.approx(documented, abs=4 * (documented * (1 - documented) / 1000) ** 0.5)
