"""Bland and Altman's limits of agreement: the range of nearly all differences between two raters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.intervals import AgreementEstimate
from grading_app.statistics.judge_bias import compute_people_means, select_common_units
from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Ratings

LIMIT_IN_SD = 1.96


@dataclass(frozen=True, slots=True)
class LimitsOfAgreement:
    """Bland and Altman's limits, with the points of their plot.

    differences: the judge's rating minus the people's mean. means: the mean of both. times: the number of units at
    each point. mean: the mean of the differences. low, high: the limits.
    """

    means: tuple[float, ...]
    differences: tuple[float, ...]
    times: tuple[int, ...]
    mean: float
    low: AgreementEstimate
    high: AgreementEstimate


def limits_of_agreement(
    ratings: Ratings,
    judge: Hashable,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
) -> LimitsOfAgreement:
    """Return the mean difference of judge and people -+ 1.96 standard deviations of the differences (divided by n - 1).

    J. M. Bland & D. G. Altman (1986), "Statistical methods for assessing agreement between two methods of clinical
    measurement", Lancet 327, 307-310. Each limit has the interval of `bootstrap`, which draws whole items. Only units
    that the judge and a person rated are used. With fewer than two units, the limits are None. Raise ValueError if no
    unit has both ratings, and in the cases of `judge_bias`.
    """
    used, left_out = select_common_units(ratings, judge)
    if not used.units:
        raise ValueError("no unit was rated by the judge and by people")
    people, judged = compute_people_means(used, judge), used.values[:, used.column(judge)]
    differences = judged - people
    low, high = (
        bootstrap(
            Coefficient(f"{name} limit of agreement", used, left_out, _estimate_limit(differences, reach)),
            seed=seed, items=items, resamples=resamples,
        )
        for name, reach in (("lower", -LIMIT_IN_SD), ("upper", LIMIT_IN_SD))
    )  # fmt: skip
    means = (judged + people) / 2
    times = tuple(np.rint(used.times).astype(int).tolist())
    mean = float(np.average(differences, weights=used.times))
    return LimitsOfAgreement(tuple(means.tolist()), tuple(differences.tolist()), times, mean, low, high)


def _estimate_limit(differences: Floats, sd_multiple: float) -> Callable[[Floats], Floats]:
    def compute(times: Floats) -> Floats:
        n = times.sum(axis=1)
        means = times @ differences / n
        squares = (times * (differences[None, :] - means[:, None]) ** 2).sum(axis=1)
        # With fewer than two units the quotient is NaN, and so is the limit.
        limits: Floats = means + sd_multiple * np.sqrt(divide(squares, n - 1))
        return limits

    return compute
