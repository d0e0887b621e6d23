"""Survival over tokens: how long answers go on, with bands. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalsite.lib.stats.wilson import normal_quantile


@dataclass(frozen=True, slots=True)
class SurvivalStep:
    """The curve from `time` to the next step. at_risk: before it. low, high: the band at each time, not over all."""

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

    events, censored: the number of cases that ended, or were last seen, at each time. Cases censored at the time of an
    event are still at risk then. Variance by Greenwood; the band is symmetric for log(-log S) and stays within 0 and 1.
    At S = 0 or 1 it has no width on that scale; there the last band is kept.
    E. L. Kaplan & P. Meier (1958), "Nonparametric estimation from incomplete observations", JASA 53, 457-481;
    J. D. Kalbfleisch & R. L. Prentice (1980), The Statistical Analysis of Failure Time Data, section 1.3.
    """
    z = normal_quantile(confidence)
    at_risk = sum(events.values()) + sum(censored.values())
    steps: list[SurvivalStep] = []
    survival, greenwood, low, high = 1.0, 0.0, 0.0, 1.0
    for time in sorted({*events, *censored}):
        ended, lost = events.get(time, 0), censored.get(time, 0)
        if ended:
            survival *= 1 - ended / at_risk
            if at_risk > ended:
                greenwood += ended / (at_risk * (at_risk - ended))
            if 0 < survival < 1:
                width = z * math.sqrt(greenwood) / abs(math.log(survival))
                low, high = survival ** math.exp(width), survival ** math.exp(-width)
            else:
                low = 0.0
            steps.append(SurvivalStep(time, at_risk, ended, survival, low, high))
        at_risk -= ended + lost
    return steps


def thin_steps(steps: Sequence[SurvivalStep], most: int = 200) -> list[SurvivalStep]:
    """Return at most `most` steps, evenly over the survival, with the first and the last one."""
    if len(steps) <= most:
        return list(steps)
    stride = (len(steps) - 1) / (most - 1)
    return [steps[round(at * stride)] for at in range(most)]
