"""The stopping rule for the mean rating of a point."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from evalsite.lib.stats import compute_bounded_interval, normal_quantile
from runs_app.stopping.rules import PointRatings, StoppingRule, expect_ratings

SCALE = (1, 7)
WIDE = {"maximum": 512, "widest": math.inf}


def build_ratings(items, mean=4.0, spread=1.0, **fields):
    return PointRatings(**{"items": items, "total": items, "mean": mean, "spread": spread, "scale": SCALE, **fields})


def test_the_interval_is_students_after_adding_two_items_at_each_end():
    values = [4, 5, 5, 6, 3, 4, 4, 5]
    with_ends = [*values, 1, 1, 7, 7]
    reach = student.ppf(0.975, 11) * statistics.stdev(with_ends) / math.sqrt(12)
    interval = build_ratings(8, statistics.mean(values), statistics.stdev(values)).interval()
    assert (interval.center, interval.margin) == pytest.approx((statistics.mean(with_ends), reach))


def test_the_interval_of_a_two_point_scale_is_agresti_and_coulls_with_students_quantile():
    right, n = 70, 96
    sd = math.sqrt(right / n * (1 - right / n) * n / (n - 1))
    result = compute_bounded_interval(n, right / n, sd, (0, 1))
    p = (right + 2) / (n + 4)
    assert result.center == pytest.approx(p)
    wald = normal_quantile(0.95) * math.sqrt(p * (1 - p) / (n + 4))
    assert result.margin == pytest.approx(wald, rel=0.02)


def test_equal_ratings_do_not_stop_a_point_immediately():
    rule = StoppingRule(targetci=0.25, **WIDE)
    assert rule.decide(build_ratings(32, spread=0)).kind == "more"
    enough = next(n for n in range(1, 512) if rule.decide(build_ratings(n, spread=0)).kind == "enough")
    assert enough == 45
    assert rule.decide(build_ratings(enough, spread=0)).reason == "the interval is ±0.2488 after 45 cases, within ±0.25"


def test_repetitions_of_the_same_items_do_not_narrow_the_interval():
    once, ten_times = build_ratings(40), build_ratings(40, total=400)
    assert once.interval() == ten_times.interval()
    rule = StoppingRule(targetci=0.3, **WIDE)
    reason = "the interval is ±0.4015 after 512 cases, the maximum; the target is ±0.3"
    assert rule.decide(build_ratings(40, total=512)).reason == reason


@pytest.mark.parametrize(
    ("ratings", "kind", "reason"),
    [
        (build_ratings(0), "more", "there is no answer yet"),
        (build_ratings(64, spread=1.2), "more", "the target is ±0.3"),
        (build_ratings(128, spread=1.2), "enough", "the interval is ±0.2226 after 128 cases, within ±0.3"),
        # 30 of 158 cut off are 19 %: the stricter half-width is wanted.
        (build_ratings(128, spread=1.2, truncated=30), "more", "the target is ±0.2"),
        (build_ratings(15, truncated=17), "abort", "17 of 32 answers were truncated (53.1%), above the limit of 50.0%"),
        (build_ratings(0, truncated=32), "abort", "32 of 32 answers were truncated (100.0%)"),
    ],
)
def test_the_ratings_of_a_round_determine_the_next_decision(ratings, kind, reason):
    rule = StoppingRule(targetci=0.3, targetciht=0.2, backoffht=0.15, abortht=0.5, **WIDE)
    result = rule.decide(ratings)
    assert (result.kind, reason in result.reason) == (kind, True), result.reason


def test_a_point_without_any_rating_ends_at_its_maximum():
    result = StoppingRule(targetci=0.3, **WIDE).decide(build_ratings(0), n_planned=512)
    assert (result.kind, result.reason) == (
        "exhausted",
        "no rating was read after 0 cases, the maximum; the target is ±0.3",
    )


def test_half_widths_of_ratings_may_exceed_one_and_those_of_accuracies_may_not():
    assert StoppingRule(targetci=3, maximum=8, widest=50).target(0) == 3
    with pytest.raises(ValueError, match="targetci lies between 0 and 1, not at 3"):
        StoppingRule(targetci=3, maximum=8)
    with pytest.raises(ValueError, match="abortht lies between 0 and 1, not at 3"):
        StoppingRule(abortht=3, maximum=8, widest=50)


@pytest.mark.parametrize("wrong", [{"items": 9, "total": 8}, {"mean": 7.5}, {"spread": -1}, {"scale": (3, 3)}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="impossible numbers"):
        build_ratings(**{"items": 8, **wrong})


@given(
    ratings=st.lists(st.integers(0, 100), min_size=1, max_size=60),
    confidence=st.floats(0.5, 0.999),
)
def test_an_interval_is_never_empty_and_stays_on_its_scale(ratings, confidence):
    spread = statistics.stdev(ratings) if len(ratings) > 1 else 0.0
    interval = PointRatings(len(ratings), len(ratings), statistics.fmean(ratings), spread, (0, 100)).interval(
        confidence
    )
    assert interval.margin > 0
    assert 0 <= interval.low < interval.high <= 100


@given(spread=st.floats(0, 3), items=st.integers(1, 300))
def test_more_items_of_the_same_spread_narrow_the_interval(spread, items):
    assert (
        build_ratings(items + 1, spread=spread).interval().margin
        < build_ratings(items, spread=spread).interval().margin
    )


def test_the_expected_number_of_items_is_within_its_bounds():
    rule = StoppingRule(targetci=0.3, **WIDE)
    expected = expect_ratings(rule, 8, SCALE, 512)
    assert 40 < expected < 200
    assert expect_ratings(rule, 8, SCALE, 30) == 512  # Thirty items are never enough, however often they are rated.
    assert expect_ratings(StoppingRule(maximum=512), 8, SCALE, 512) == 8
