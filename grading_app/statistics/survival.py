"""Survival curves of the lengths of answers in tokens, with confidence bands. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalsite.lib.stats.wilson import normal_quantile


@dataclass(frozen=True, slots=True)
class SurvivalStep:
    """The curve from `time` to the next step. at_risk: just before `time`. low, high: the pointwise band."""

    time: int
    at_risk: int
    events: int
    survival: float
    low: float
    high: float


def kaplan_meier(
    events: Mapping[int, int], censored: Mapping[int, int], confidence: float = 0.95
) -> list[SurvivalStep]:
    """Return the product-limit estimate of survival after each time with an event.

    events, censored: the number of cases that ended, or were last observed, at each time. Cases censored at the time of
    an event are still at risk. The variance is Greenwood's. The band is symmetric for log(-log S) and stays within 0
    and 1. At S = 0 or 1, this scale has no variance, so the previous band is used.
    E. L. Kaplan & P. Meier (1958), "Nonparametric estimation from incomplete observations", JASA 53, 457-481;
    J. D. Kalbfleisch & R. L. Prentice (1980), The Statistical Analysis of Failure Time Data, section 1.3.
    """
    z = normal_quantile(confidence)
    at_risk = sum(events.values()) + sum(censored.values())
    steps: list[SurvivalStep] = []
    survival, greenwood, low, high = 1.0, 0.0, 0.0, 1.0
    for time in sorted({*events, *censored}):
        n_events, n_censored = events.get(time, 0), censored.get(time, 0)
        if n_events:
            survival *= 1 - n_events / at_risk
            if at_risk > n_events:
                greenwood += n_events / (at_risk * (at_risk - n_events))
            if 0 < survival < 1:
                width = z * math.sqrt(greenwood) / abs(math.log(survival))
                low, high = survival ** math.exp(width), survival ** math.exp(-width)
            else:
                low = 0.0
            steps.append(SurvivalStep(time, at_risk, n_events, survival, low, high))
        at_risk -= n_events + n_censored
    return steps


def thin_steps(steps: Sequence[SurvivalStep], max_steps: int = 200) -> list[SurvivalStep]:
    """Return at most `max_steps` steps, evenly over the survival, including the first and the last."""
    if len(steps) <= max_steps:
        return list(steps)
    stride = (len(steps) - 1) / (max_steps - 1)
    return [steps[round(index * stride)] for index in range(max_steps)]
