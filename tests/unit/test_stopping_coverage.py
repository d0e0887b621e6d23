"""The coverage table that pages quote; a smaller simulation with another seed agrees within its error."""

import pytest

from runs_app.stopping.coverage import COVERAGE, GUESSES, SKILLS, find_nearest_coverage, simulate

POINTS = 1_500


@pytest.mark.parametrize("setting", COVERAGE, ids=str)
def test_the_interval_at_the_stop_has_the_coverage_of_the_table(setting):
    for skill, documented in zip(SKILLS, COVERAGE[setting], strict=True):
        result = simulate(*setting, skill, points=POINTS, seed=7)
        # Four standard errors of the difference; the minimum is for shares near 1, whose own error vanishes.
        error = max(0.002, (documented * (1 - documented) / POINTS) ** 0.5)
        assert result == pytest.approx(documented, abs=4 * error), skill


def test_checking_after_each_round_costs_at_most_three_points_of_coverage():
    assert min(rate for row in COVERAGE.values() for rate in row) >= 0.92


def test_the_correction_by_excess_counts_covers_far_less_near_guessing():
    # The reason why this interval does not decide: 2,000 points at a fixed 128 cases of four choices, a tenth known.
    import numpy as np

    from runs_app.stopping.rules import Tally

    def covered(correction):
        right = np.random.default_rng(3).binomial(128, 0.1 + 0.9 * 0.25, 2000)
        intervals = [Tally(int(n), 128, guess_chances=32).interval(correction=correction) for n in right]
        return sum(one.low <= 0.1 <= one.high for one in intervals) / 2000

    assert covered("mapped") > 0.93
    assert covered("excess_counts") < 0.88


def test_every_simulated_setting_has_all_guess_chances():
    assert {guess for *_, guess in COVERAGE} == set(GUESSES)
    assert len(COVERAGE) % len(GUESSES) == 0


def test_a_setting_gets_the_coverage_of_the_nearest_simulated_setting():
    near = find_nearest_coverage(0.08, 40)
    assert (near.target, near.per_round) == (0.09, 32)
    assert near.least == min(rate for guess in GUESSES for rate in COVERAGE[0.09, 32, guess])
    assert (find_nearest_coverage(0.0, 1).target, find_nearest_coverage(1.0, 10_000).per_round) == (0.05, 128)
