"""Kaplan and Meier's estimate, against a published trial and statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight

from grading_app.statistics.token_statistics import kaplan_meier, thin_steps

# Freireich et al. (1963), Blood 21, 699-716: weeks of remission under 6-mercaptopurine.
RELAPSES = {6: 3, 7: 1, 10: 1, 13: 1, 16: 1, 22: 1, 23: 1}
IN_REMISSION = {6: 1, 9: 1, 10: 1, 11: 1, 17: 1, 19: 1, 20: 1, 25: 1, 32: 2, 34: 1, 35: 1}


def test_freireichs_remissions_have_the_published_curve():
    steps = kaplan_meier(RELAPSES, IN_REMISSION)
    assert [(step.time, step.at_risk, round(step.survival, 3)) for step in steps] == [
        (6, 21, 0.857), (7, 17, 0.807), (10, 15, 0.753), (13, 12, 0.690), (16, 11, 0.627), (22, 7, 0.538),
        (23, 6, 0.448),
    ]  # fmt: skip
    # The log(-log) band of R's survfit(conf.type = "log-log") at 6 and 23 weeks.
    assert (steps[0].low, steps[0].high) == pytest.approx((0.620, 0.952), abs=5e-4)
    assert (steps[-1].low, steps[-1].high) == pytest.approx((0.188, 0.680), abs=5e-4)


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=2, max_size=60))
def test_survival_and_its_error_match_statsmodels(cases):
    times, ended = np.array([time for time, _ in cases]), np.array([int(status) for _, status in cases])
    if not ended.any():
        return
    events = {time: int(((times == time) & (ended == 1)).sum()) for time in set(times.tolist())}
    censored = {time: int(((times == time) & (ended == 0)).sum()) for time in set(times.tolist())}
    steps = kaplan_meier(events, censored)
    expected = SurvfuncRight(times, ended)
    result = {step.time: step for step in steps}
    for time, survival in zip(expected.surv_times.tolist(), expected.surv_prob.tolist(), strict=True):
        if time in result:
            assert result[time].survival == pytest.approx(survival, abs=1e-9)
            assert 0 <= result[time].low <= survival + 1e-12
            assert survival - 1e-12 <= result[time].high <= 1


def test_thinning_keeps_the_ends():
    steps = kaplan_meier(dict.fromkeys(range(1, 1001), 1), {})
    thin = thin_steps(steps, 50)
    assert len(thin) == 50
    assert (thin[0], thin[-1]) == (steps[0], steps[-1])
