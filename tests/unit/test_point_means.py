"""The mean over the points of a task: its interval, its independence of the numbers of answers, and its coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.reason_score import PointTallies, chance_correct, score_task
from runs_app.stopping.rules import StoppingRule, Tally

SAMPLES = 400


@st.composite
def tallies(draw):
    """Return points with up to 200 answers each; all of them right, all wrong, or any number."""
    points = []
    for _ in range(draw(st.integers(1, 30))):
        total = draw(st.integers(0, 200))
        correct = draw(st.sampled_from([0, total]) | st.integers(0, total))
        guess = draw(st.sampled_from([0.0, 0.1, 0.5]))
        points.append(Tally(correct, total, draw(st.integers(0, 9)), guess * total))
    return PointTallies(tuple(points))


@given(tallies())
def test_the_interval_is_within_0_and_1_and_never_empty(points):
    interval = points.interval()
    if not points.total:
        assert interval is points.mean is None
        return
    assert 0 <= interval.low < interval.high <= 1
    assert 0 <= points.mean <= 1
    assert 0 <= points.truncation <= 1
    assert 0.01 <= chance_correct(points) <= 1


def test_the_mean_does_not_depend_on_the_numbers_of_answers():
    few, many = (PointTallies((Tally(9, 10), Tally(n // 2, n))) for n in (10, 1000))
    assert few.mean == many.mean == pytest.approx(0.7)
    assert score_task(few).value == pytest.approx(0.7)
    assert score_task(Tally(9 + 500, 10 + 1000)).value == pytest.approx(0.504, abs=1e-3)


def test_the_interval_equals_the_published_formula():
    """Two points without guessing: one right and one wrong answer are added to each."""
    interval = PointTallies((Tally(8, 10), Tally(15, 20))).interval()
    shares, sizes = np.array([9 / 12, 16 / 22]), np.array([12, 22])
    margin = 1.959964 * np.sqrt(np.sum(shares * (1 - shares) / sizes) / 4)
    assert (interval.center, interval.margin) == pytest.approx((shares.mean(), margin), abs=1e-6)


def test_points_without_scored_answers_have_no_weight_in_the_mean_and_count_as_truncated():
    points = PointTallies((Tally(5, 10), Tally(0, 0, truncated=10), Tally(0, 0)))
    assert points.mean == 0.5
    assert points.truncation == 0.5
    assert points.chance == 0.25
    assert len(points.answered) == 1


@pytest.mark.slow
@pytest.mark.parametrize("guess", [0.0, 0.5])
@pytest.mark.parametrize("skills", [np.linspace(1, 0, 12), np.full(12, 0.6), np.full(12, 0.97)])
def test_the_interval_covers_the_mean_after_adaptive_stopping(skills, guess):
    """Rounds of 32 cases until ±0.09, at most 512. The pooled share of right answers misses the mean over points."""
    rng, rule = np.random.default_rng(17), StoppingRule(maximum=512, targetci=0.09)
    covered = 0
    for _ in range(SAMPLES):
        points = []
        for chance in guess + (1 - guess) * skills:
            tally = Tally(0, 0)
            while not tally.total or rule.decide(tally, n_planned=tally.total).kind == "more":
                right, total = tally.correct + int(rng.binomial(32, chance)), tally.total + 32
                tally = Tally(right, total, guess_chances=guess * total)
            points.append(tally)
        interval = PointTallies(tuple(points)).interval()
        covered += interval.low <= skills.mean() <= interval.high
    assert covered / SAMPLES >= 0.92
