"""The mean that people would give to all units, from the few they rated and the judge's ratings of all."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from grading_app.agreement.estimates import Estimate
from grading_app.agreement.judges import people_means
from grading_app.agreement.ratings import Floats, Ratings, Whole
from grading_app.agreement.resampling import clusters_of
from grading_app.analysis.statistics import student_quantile


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
    """f: the judge on units that people did not rate; y, g: people and judge on those that they rated."""

    f: Floats
    y: Floats
    g: Floats
    clusters_f: Whole
    clusters_y: Whole
    clusters: int  # at most


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
    freedom. Where each unit is an item this is the paper's variance with n - 1 for n.
    What people rated has to be a random part of all units: chosen otherwise, nothing here is right.
    Units without the judge's rating are left out. ValueError if no unit has both, the judge is not among the raters, or
    a unit has no item.
    """
    known = ratings.where(ratings.given[:, ratings.column(judge)])
    sample = _sample(known, judge, items)
    if not sample.y.size:
        raise ValueError("no unit was rated by the judge and by people")
    share = (_best_share(sample) if tuned else 1.0) if sample.f.size else 0.0
    people = known.without(judge)
    common = Estimate(
        "", None, len(known.units), people.n_raters, people.n_ratings, len(ratings.units) - len(known.units)
    )
    how = ", tuned" if tuned else ""
    corrected = replace(_told(common, sample, share, confidence), formula=f"prediction-powered mean{how}")
    alone = replace(_told(common, sample, 0.0, confidence), formula="mean of the people", units=len(sample.y))
    judged = replace(
        common, formula="mean of the judge", estimate=float(np.concatenate([sample.f, sample.g]).mean()), raters=1,
        ratings=len(known.units),
    )  # fmt: skip
    return CorrectedMean(corrected, alone, judged, share, float((sample.y - sample.g).mean()))


def _sample(known: Ratings, judge: Hashable, items: Mapping[Hashable, Hashable] | None) -> _Sample:
    clusters = clusters_of(known.units, items)
    rated = known.without(judge).per_unit > 0
    judged, means = known.values[:, known.column(judge)], people_means(known, judge)
    return _Sample(judged[~rated], means[rated], judged[rated], clusters[~rated], clusters[rated], len(known.units))


def _told(common: Estimate, sample: _Sample, share: float, confidence: float) -> Estimate:
    rectified = sample.y - share * sample.g
    estimate = float(rectified.mean()) + (share * float(sample.f.mean()) if share else 0.0)
    groups = len(np.unique(sample.clusters_y))
    if groups < 2:
        return replace(common, estimate=estimate, clusters=groups)
    residuals = _by_cluster(sample.clusters_y, rectified, sample.clusters)
    if share:
        residuals = residuals + share * _by_cluster(sample.clusters_f, sample.f, sample.clusters)
    se = math.sqrt(groups / (groups - 1) * float((residuals**2).sum()))
    reach = student_quantile(confidence, groups - 1) * se
    return replace(
        common, estimate=estimate, se=se, low=estimate - reach, high=estimate + reach, confidence=confidence,
        interval=f"Student's t, clustered by {groups:,} items that people rated", clusters=groups,
    )  # fmt: skip


def _best_share(sample: _Sample) -> float:
    """The share at which the sum of squared residuals of all items is least: it is a parabola in the share."""
    fixed = _by_cluster(sample.clusters_y, sample.y, sample.clusters)
    moving = _by_cluster(sample.clusters_f, sample.f, sample.clusters)
    moving = moving - _by_cluster(sample.clusters_y, sample.g, sample.clusters)
    squares = float((moving**2).sum())
    return min(1.0, max(0.0, -float((fixed * moving).sum()) / squares)) if squares > 0 else 0.0


def _by_cluster(clusters: Whole, values: Floats, size: int) -> Floats:
    """(size,): the residuals of a mean, as parts of it, added up over each cluster."""
    parts: Floats = np.bincount(clusters, (values - values.mean()) / len(values), minlength=size).astype(np.float64)
    return parts
