"""Scores far from zero: sums in the database keep their spread."""

import pytest

from grading_app.results.frames import load_frames
from grading_app.results.raters.verdict_stats import read_scores
from tests.factories.gradings import make_answered_experiment, make_gradings

pytestmark = pytest.mark.django_db


def get_numbers(estimates, start):
    assert estimates.method.startswith("Student's t")
    return [estimates.sd, estimates.se, estimates.low - start, estimates.high - start, estimates.mean - start]


def test_scores_of_a_billion_have_the_error_and_interval_of_small_scores_on_results_and_grading():
    experiment = make_answered_experiment(items=6, samples=2)
    starts = {"small": 100, "large": 10**9}
    conditions = {
        name: make_gradings(experiment, name, lambda trial, start=start: start + trial.pk * (trial.item_id % 3 + 1) % 2)
        for name, start in starts.items()
    }
    frames = load_frames(experiment)
    results = {line.measure.grader: line for line in frames.lines}
    grading = read_scores(list(conditions.values()))
    for estimates in (
        {name: results[condition.pk].score for name, condition in conditions.items()},
        {name: grading[condition.pk].means[0].score for name, condition in conditions.items()},
    ):
        small, large = (get_numbers(estimates[name], start) for name, start in starts.items())
        assert small[0] > 0.4
        assert large == pytest.approx(small, abs=1e-6)
