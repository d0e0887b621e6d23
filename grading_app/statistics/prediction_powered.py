"""The mean that people would give to all units, from the few they rated and the judge's ratings of all."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.bootstrap import Clusters, clusters_of
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.judge_bias import people_means
from grading_app.statistics.ratings import Floats, Ratings

FEWEST_FITTED = 4  # Items; of three the one degree of freedom left makes intervals twice as wide as people's own.


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """What is known of the people's mean, and how.

    corrected: by prediction-powered inference; people: from the people's ratings alone; judge: the judge's own mean
    over all units, with its bias. judge_share: how much of the judge entered, 0 to 1 (1 unless tuned).
    rectifier: people less judge, on the units that both rated.
    """

    corrected: Estimate
    people: Estimate
    judge: Estimate
    judge_share: float
    rectifier: float


@dataclass(frozen=True, eq=False)
class _Sample:
    """f: the judge on units that people did not rate; y, g: people and judge on those that they rated.

    unrated, rated: the items of both, kind by kind the same; times_f, times_y: how many units a row stands for.
    """

    f: Floats
    y: Floats
    g: Floats
    times_f: Floats
    times_y: Floats
    unrated: Clusters
    rated: Clusters


def corrected_mean(
    ratings: Ratings,
    judge: Hashable,
    items: Mapping[Hashable, Hashable] | None = None,
    confidence: float = 0.95,
    tuned: bool = False,
) -> CorrectedMean:
    """The mean of the people's ratings over all units, where people rated a random part and the judge rated all.

    theta = share * mean over unrated units of f + mean over rated units of (y - share * f), y the people's mean rating
    of a unit and f the judge's: the judge's mean, moved by what it gets wrong where people can tell. Unbiased whatever
    the judge is worth; narrower than people alone where the judge predicts them.
    A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan & T. Zrnic (2023), "Prediction-powered inference", Science
    382, 669-674 (share = 1). tuned: the share, within 0 and 1, that makes the interval narrowest, so that a bad judge
    costs nothing: A. N. Angelopoulos, J. C. Duchi & T. Zrnic (2023), "PPI++", arXiv:2311.01453.
    The standard error adds up, over items (unit -> item; each unit one where not given), the squares of the residuals
    of both parts, times G / (G - 1) for G items that people rated; the interval is Student's with G - 1 degrees of
    freedom. Where each unit is an item this is the paper's variance with n - 1 for n. A share that was fitted to the
    same items takes one more degree, as a slope does: G / (G - 2) and G - 2. Without that, few items would promise
    what they do not hold (of five, 95 % would be 89). Below four items there is too little to fit it to: it is 0.
    What people rated has to be a random part of all units: chosen otherwise, nothing here is right.
    Units without the judge's rating are left out. ValueError if no unit has both, the judge is not among the raters, or
    a unit has no item.
    """
    known = ratings.where(ratings.given[:, ratings.column(judge)])
    sample = _sample(known, judge, items)
    if not sample.y.size:
        raise ValueError("no unit was rated by the judge and by people")
    share = (_best_share(sample) if tuned else 1.0) if sample.f.size else 0.0
    fitted = int(tuned and share > 0)
    people = known.without(judge)
    common = Estimate("", None, known.n_units, people.n_raters, people.n_ratings, ratings.n_units - known.n_units)
    how = ", tuned" if tuned else ""
    corrected = replace(_told(common, sample, share, confidence, fitted), formula=f"prediction-powered mean{how}")
    alone = replace(_told(common, sample, 0.0, confidence), formula="mean of the people",
                    units=round(float(sample.times_y.sum())))  # fmt: skip
    judged_mean = float(np.average(known.values[:, known.column(judge)], weights=known.times))
    judged = replace(common, formula="mean of the judge", estimate=judged_mean, raters=1, ratings=known.n_units)
    rectifier = float(np.average(sample.y - sample.g, weights=sample.times_y))
    return CorrectedMean(corrected, alone, judged, share, rectifier)


def _sample(known: Ratings, judge: Hashable, items: Mapping[Hashable, Hashable] | None) -> _Sample:
    clusters, times = clusters_of(known, items), known.times
    rated = known.without(judge).per_unit > 0
    judged, means = known.values[:, known.column(judge)], people_means(known, judge)
    return _Sample(
        judged[~rated], means[rated], judged[rated], times[~rated], times[rated], clusters.where(~rated),
        clusters.where(rated),
    )  # fmt: skip


def _told(common: Estimate, sample: _Sample, share: float, confidence: float, fitted: int = 0) -> Estimate:
    """fitted: how many numbers were fitted to what people rated, beside the mean."""
    rectified = sample.y - share * sample.g
    estimate = float(np.average(rectified, weights=sample.times_y))
    estimate += share * float(np.average(sample.f, weights=sample.times_f)) if share else 0.0
    groups = sample.rated.n
    if groups < 2:
        return replace(common, estimate=estimate, clusters=groups)
    residuals = _by_cluster(sample.rated, rectified, sample.times_y)
    if share:
        residuals = residuals + share * _by_cluster(sample.unrated, sample.f, sample.times_f)
    free = groups - 1 - fitted
    se = math.sqrt(groups / free * float(sample.rated.alike @ residuals**2))
    reach = student_quantile(confidence, free) * se
    return replace(
        common, estimate=estimate, se=se, low=estimate - reach, high=estimate + reach, confidence=confidence,
        interval=f"Student's t, clustered by {groups:,} items that people rated", clusters=groups,
    )  # fmt: skip


def _best_share(sample: _Sample) -> float:
    """The share at which the sum of squared residuals of all items is least: it is a parabola in the share."""
    if sample.rated.n < FEWEST_FITTED:
        return 0.0
    fixed, alike = _by_cluster(sample.rated, sample.y, sample.times_y), sample.rated.alike
    moving = _by_cluster(sample.unrated, sample.f, sample.times_f)
    moving = moving - _by_cluster(sample.rated, sample.g, sample.times_y)
    squares = float(alike @ moving**2)
    return min(1.0, max(0.0, -float(alike @ (fixed * moving)) / squares)) if squares > 0 else 0.0


def _by_cluster(clusters: Clusters, values: Floats, times: Floats) -> Floats:
    """(kinds of items,): the residuals of a mean, as parts of it, added up over each item."""
    return clusters.totals((values - np.average(values, weights=times)) / times.sum())
