import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.stats import wilson
from runs_app.stopping.rules import StoppingRule, Tally, expect_cases

RULE = StoppingRule(maximum=512, targetci=0.09, targetciht=0.06, abortht=0.5, backoffht=0.15, minci=0.04)


def test_96_of_128_has_a_half_width_of_7_43_points():
    # Wilson's half-width of 96 of 128 at 95 % is .07427.
    decision = StoppingRule(maximum=512, targetci=0.0743).decide(Tally(96, 128))
    unknown = StoppingRule(maximum=512, targetci=0.0742).decide(Tally(96, 128))
    assert (decision.kind, unknown.kind) == ("enough", "more")
    assert round(decision.half_width, 5) == 0.07427
    assert decision.reason == "the interval is ±0.0743 after 128 cases, within ±0.0743"
    assert unknown.reason == "the interval is ±0.0743 after 128 cases, the target is ±0.0742"


def test_guessing_is_removed_from_the_interval_by_a_mapping():
    # Four choices each: three quarters right is two thirds beyond guessing, and the width grows by 4/3.
    interval = Tally(96, 128, guess_chances=32).interval()
    assert interval.center == pytest.approx((wilson(96, 128).center - 0.25) / 0.75)
    assert interval.margin == pytest.approx(wilson(96, 128).margin / 0.75)
    below_guessing = Tally(10, 128, guess_chances=32).interval()
    assert (below_guessing.low, below_guessing.high) == (0, 0)
    assert Tally(96, 128).interval() == wilson(96, 128)


def test_the_excess_count_method_can_be_selected_by_name():
    tally = Tally(96, 128, guess_chances=32)  # 32 of 128 by guessing, so 64 of 96.
    assert tally.interval(correction="excess_counts") == wilson(64, 96)
    assert Tally(10, 128, guess_chances=32).interval(correction="excess_counts") == wilson(0, 96)
    by_counts = StoppingRule(maximum=512, targetci=0.1, correction="excess_counts").decide(tally)
    assert by_counts.half_width == wilson(64, 96).margin


def test_a_guess_chance_of_one_gives_no_information():
    assert Tally(5, 8, guess_chances=8).interval() is None
    assert RULE.decide(Tally(5, 8, guess_chances=8)).reason == (
        "guessing explains all answers after 8 cases, the target is ±0.09"
    )


@pytest.mark.parametrize(
    ("tally", "kind", "reason"),
    [
        (Tally(0, 0), "more", "there is no answer yet"),
        (Tally(16, 32), "more", "the interval is ±0.1637 after 32 cases, the target is ±0.09"),
        (Tally(32, 32), "enough", "the interval is ±0.0536 after 32 cases, within ±0.09"),
        # 20 of 116 cut off is 17.2 %: the stricter half-width is wanted; 10 of 106 is 9.4 %.
        (Tally(87, 96, truncated=20), "more", "the interval is ±0.0593 after 116 cases, the target is ±0.05"),
        (Tally(87, 96, truncated=10), "enough", "the interval is ±0.0593 after 106 cases, within ±0.09"),
        (Tally(15, 15, truncated=17), "abort", "17 of 32 answers were truncated (53.1%), above the limit of 50.0%"),
        (Tally(16, 16, truncated=16), "more", "the target is ±0.05"),
        (Tally(0, 0, truncated=32), "abort", "32 of 32 answers were truncated (100.0%)"),
        (
            Tally(150, 300, truncated=212),
            "exhausted",
            "the interval is ±0.0562 after 512 cases, the maximum; the target is ±0.05",
        ),
    ],
)
def test_the_counts_of_a_round_determine_the_next_decision(tally, kind, reason):
    rule = StoppingRule(maximum=512, targetci=0.09, targetciht=0.05, abortht=0.5, backoffht=0.15, minci=0.04)
    result = rule.decide(tally)
    assert (result.kind, reason in result.reason) == (kind, True), result.reason


def test_the_target_half_width_is_never_below_minci():
    rule = StoppingRule(maximum=10_000, targetci=0.05, targetciht=0.01, backoffht=0.1, minci=0.03)
    assert (rule.target(0.1), rule.target(0.11)) == (0.05, 0.03)


def test_one_round_is_enough_without_a_target_half_width():
    assert StoppingRule(maximum=512).decide(Tally(1, 32)).kind == "enough"
    assert StoppingRule(maximum=512, abortht=0.1).decide(Tally(1, 32, truncated=32)).kind == "abort"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"targetci": 9}, "targetci lies between 0 and 1, not at 9"),
        ({"abortht": -0.1}, "abortht lies"),
        ({"maximum": 0}, "at least one case"),
        ({"targetciht": 0.1}, "come together"),
        ({"backoffht": 0.1}, "come together"),
    ],
)
def test_an_invalid_rule_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        StoppingRule(**{"maximum": 512, **options})


@pytest.mark.parametrize("counts", [(2, 1), (-1, 1), (1, 1, -1), (1, 1, 0, 2), (1, 1, 0, -1)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="impossible counts"):
        Tally(*counts)


@given(st.integers(0, 600), st.data())
def test_every_point_stops_at_its_maximum(total, data):
    correct, truncated = data.draw(st.integers(0, total)), data.draw(st.integers(0, 600))
    decision = RULE.decide(Tally(correct, total, truncated, data.draw(st.floats(0, total))))
    assert decision.kind != "more" or total + truncated < RULE.maximum
    if truncated > 0.5 * (total + truncated):
        assert decision.kind == "abort"


def test_cases_without_an_answer_count_towards_the_maximum():
    assert RULE.decide(Tally(0, 0), n_planned=96).kind == "more"
    assert RULE.decide(Tally(0, 0), n_planned=512).kind == "exhausted"
    assert RULE.decide(Tally(40, 80), n_planned=512).kind == "exhausted"


@given(st.integers(1, 400), st.data())
def test_more_cases_of_the_same_share_never_widen_the_interval(total, data):
    correct, guess = data.draw(st.integers(0, total)), data.draw(st.floats(0, 0.9))
    once = Tally(correct, total, guess_chances=guess * total).interval()
    twice = Tally(2 * correct, 2 * total, guess_chances=2 * guess * total).interval()
    assert twice.margin < once.margin


@given(st.integers(1, 400), st.data())
def test_the_mapped_interval_contains_the_mapped_share(total, data):
    correct, guess = data.draw(st.integers(0, total)), data.draw(st.floats(0, 0.9))
    result = Tally(correct, total, guess_chances=guess * total).interval()
    share = max(0.0, (correct / total - guess) / (1 - guess))
    assert result.low - 1e-9 <= share <= result.high + 1e-9


def test_the_expected_cases_lie_between_one_round_and_the_maximum():
    rule = StoppingRule(maximum=512, targetci=0.09)
    assert 32 < expect_cases(rule, 32) < 128  # An accuracy of a half needs 128, one of 0 or 1 needs 32.
    assert expect_cases(rule, 32) < expect_cases(rule, 32, 0.25) < expect_cases(rule, 32, 0.5) <= 512
    assert expect_cases(StoppingRule(maximum=100, targetci=0.0001), 32) == 100
    assert expect_cases(StoppingRule(maximum=512), 32) == 32
    assert expect_cases(rule, 32, 1.0) == 512
