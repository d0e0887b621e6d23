"""Agreement between raters: percent agreement, kappas, Krippendorff's alpha, and Kendall's W for ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evalsite.lib.stats import normal_quantile
from grading_app.statistics.intervals import Spread
from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Integers, Ratings

Weights = Literal["none", "linear", "quadratic"]
BOUNDS = (-1.0, 1.0)
WEIGHTED: dict[Weights, str] = {"none": "", "linear": ", linear weights", "quadratic": ", quadratic weights"}
ROUNDING = 1e-12  # A variance below this share of the squares from which it is computed is only rounding error.
Level = Literal["nominal", "ordinal", "interval", "ratio"]
SQUARES_ROUNDING = 1e-24  # A sum of squares below this share of the uncentred squares is only rounding error.


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """Counts of one rater's categories (rows) against another's (columns).

    categories: labels or numbers, ascending. counts[i][j]: the number of units that `rows` put in i and `columns` in j.
    left_out: the number of units that only one of them rated, or neither.
    """

    rows: Hashable
    columns: Hashable
    categories: tuple[str | float, ...]
    counts: tuple[tuple[int, ...], ...]
    units: int
    left_out: int

    @property
    def agreed(self) -> int:
        return sum(row[index] for index, row in enumerate(self.counts))


def confusion_matrix(ratings: Ratings, rows: Hashable, columns: Hashable) -> ConfusionMatrix:
    """Return the matrix of two raters, over the units that both rated. Raise ValueError for an unknown rater."""
    both = ratings.select_raters(rows, columns).drop_incomplete()
    categories, codes = _number_categories(both)
    counts = np.zeros((len(categories), len(categories)), dtype=np.intp)
    np.add.at(counts, (codes[:, 0], codes[:, 1]), np.rint(both.times).astype(np.intp))
    names = tuple(both.labels[int(value)] if both.labels else float(value) for value in categories)
    left_out = ratings.n_units - both.n_units
    return ConfusionMatrix(rows, columns, names, tuple(tuple(row) for row in counts.tolist()), both.n_units, left_out)


def percent_agreement(ratings: Ratings) -> Coefficient:
    """Return the share of agreeing pairs of ratings of one unit, averaged over units (0 to 1).

    P = mean over units of sum over categories of n_uc (n_uc - 1) / (m_u (m_u - 1)), where n_uc of a unit's m_u ratings
    are c. This is the observed agreement of J. L. Fleiss (1971). It is not corrected for chance. Units with fewer than
    two ratings are excluded.
    """
    used = ratings.with_at_least(2)
    counts, sizes = used.counts, used.per_unit
    agreeing: Floats = (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))

    def compute(times: Floats) -> Floats:
        return divide(times @ agreeing, times.sum(axis=1))

    left_out = ratings.n_units - used.n_units
    return Coefficient("percent agreement", used, left_out, compute, bounds=(0.0, 1.0), unit_values=agreeing)


def cohens_kappa(ratings: Ratings, weights: Weights = "none") -> Coefficient:
    """Return Cohen's kappa of two raters: 1 - observed / expected disagreement, expected from each rater's own shares.

    q_o = mean over units of d(a_u, b_u), q_e = sum over i, j of p_i. p_.j d(i, j). The distance d is 1 for any two
    categories (unweighted), |i - j| (linear) or (i - j)^2 (quadratic). i and j are the ratings themselves, so an unused
    category does not bring its neighbours closer.
    J. Cohen (1960), Educational and Psychological Measurement 20, 37-46; J. Cohen (1968), Psychological Bulletin 70,
    213-220. The interval by formula is kappa -+ z se, within -1 and 1, with the large-sample standard error of J. L.
    Fleiss, J. Cohen & B. S. Everitt (1969), Psychological Bulletin 72, 323-327, for independent units.
    Kappa is undefined for a single unit, or if both raters use only one and the same category. Raise ValueError unless
    there are two raters.
    """
    if len(ratings.raters) != 2:
        raise ValueError(f"Cohen's kappa compares two raters, not {len(ratings.raters)}")
    both = ratings.drop_incomplete()
    categories, codes = _number_categories(both)
    distances = _compute_distances(categories, weights)
    observed = distances[codes[:, 0], codes[:, 1]]
    indicators = (codes.T[:, :, None] == np.arange(len(categories))).astype(np.float64)  # (raters, units, categories)

    def compute(times: Floats) -> Floats:
        n, (first, second) = times.sum(axis=1), times @ indicators
        expected = ((first @ distances) * second).sum(axis=1)
        return 1 - divide(times @ observed * n, _require_several_units(n, expected))

    def spread(confidence: float) -> Spread | None:
        return _large_sample_interval(distances, codes, both.times, confidence)

    formula = f"Cohen's kappa{WEIGHTED[weights]}"
    return Coefficient(formula, both, ratings.n_units - both.n_units, compute, spread, BOUNDS)


def fleiss_kappa(ratings: Ratings, weights: Weights = "none") -> Coefficient:
    """Return Fleiss' kappa of many raters, who may differ between units: 1 - observed / expected disagreement.

    observed: the mean, over units with two ratings or more, of sum over k, l of n_uk (n_ul - [k = l]) d(k, l) / (m_u
    (m_u - 1)), where n_uk of a unit's m_u ratings are k. expected: sum over k, l of p_k p_l d(k, l), where p_k is the
    mean over units of n_uk / m_u. The distance d is as in `cohens_kappa`.
    J. L. Fleiss (1971), "Measuring nominal scale agreement among many raters", Psychological Bulletin 76, 378-382;
    weighted, and for units with different numbers of ratings, as generalised by K. L. Gwet (2014), "Handbook of
    inter-rater reliability", 4th ed., chapters 2 and 3. For two raters this is Scott's pi.
    Units with a single rating enter only the expected disagreement. Units without ratings are excluded. Kappa is
    undefined for a single unit, if all ratings are in one category, or if no unit has two ratings.
    """
    used = ratings.with_at_least(1)
    counts, sizes = used.counts, used.per_unit
    distances, shares = _compute_distances(used.categories, weights), counts / sizes[:, None]
    has_pairs = (sizes > 1).astype(np.float64)
    disagreements = has_pairs * ((counts @ distances) * counts).sum(axis=1) / (sizes * np.maximum(sizes - 1, 1))

    def compute(times: Floats) -> Floats:
        pooled = times @ shares / times.sum(axis=1, keepdims=True)
        observed = divide(times @ disagreements, times @ has_pairs)
        expected = ((pooled @ distances) * pooled).sum(axis=1)
        return 1 - divide(observed, _require_several_units(times.sum(axis=1), expected))

    return Coefficient(
        f"Fleiss' kappa{WEIGHTED[weights]}", used, ratings.n_units - used.n_units, compute, bounds=(-1.0, 1.0)
    )


def _require_several_units(n: Floats, expected: Floats) -> Floats:
    """Return the expected disagreement, or 0 for a single unit, so that kappa is undefined."""
    return np.where(n > 1, expected, 0.0)


def _number_categories(ratings: Ratings) -> tuple[Floats, Integers]:
    """Return the categories, ascending, and (for complete ratings) the number of each rating's category."""
    categories = ratings.categories
    return categories, np.searchsorted(categories, ratings.values)


def _compute_distances(categories: Floats, weights: Weights) -> Floats:
    between = np.abs(categories[:, None] - categories[None, :])
    powers: dict[Weights, Floats] = {
        "none": (between > 0).astype(np.float64),
        "linear": between,
        "quadratic": between**2,
    }
    return powers[weights]


def _large_sample_interval(distances: Floats, codes: Integers, times: Floats, confidence: float) -> Spread | None:
    """Return the interval by the large-sample standard error.

    The formula uses distances d in place of the paper's weights, w = 1 - d / max d, with the same result.
    """
    n, size = float(times.sum()), len(distances)
    first, second = (np.bincount(codes[:, rater], times, minlength=size) / n for rater in (0, 1))
    expected = float(first @ distances @ second)
    if expected == 0:
        return None
    observed = distances[codes[:, 0], codes[:, 1]]
    shares = times / n
    ratio = float(shares @ observed) / expected
    influences = observed - ratio * ((distances @ second)[codes[:, 0]] + (first @ distances)[codes[:, 1]])
    squares = float(shares @ influences**2)
    variance = squares - (ratio * expected) ** 2
    if variance <= ROUNDING * squares:
        return None  # The raters agree on all units, or on none. Other units may differ.
    se = math.sqrt(variance / n) / expected
    reach, kappa = normal_quantile(confidence) * se, 1 - ratio
    method = "large-sample standard error (Fleiss, Cohen & Everitt 1969)"
    return Spread(se, max(-1.0, kappa - reach), min(1.0, kappa + reach), method)


def krippendorff_alpha(ratings: Ratings, level: Level) -> Coefficient:
    """Return 1 - D_o / D_e: the disagreement within units over the disagreement among all ratings of all units.

    D_o = 1/n sum over units of 1/(m_u - 1) sum over ordered pairs of its m_u ratings of delta^2,
    D_e = 1/(n (n - 1)) sum over ordered pairs of all n ratings of delta^2, with a distance delta^2 of c and k
    nominal: 1 if c != k; interval: (c - k)^2; ratio: ((c - k) / (c + k))^2;
    ordinal: (sum of n_g for g from c to k - (n_c + n_k) / 2)^2, where n_g ratings are g: the distance of mid-ranks.
    K. Krippendorff (2011), "Computing Krippendorff's alpha-reliability", University of Pennsylvania.
    Units with fewer than two ratings are excluded, because they have no pairs. Alpha is undefined if all ratings are
    the same. A ratio scale may have a few thousand distinct ratings, because their distances form a table. Raise
    ValueError for negative ratings on a ratio scale.
    """
    if level == "ratio" and (ratings.values < 0).any():
        raise ValueError("a ratio scale has no negative ratings")
    used = ratings.with_at_least(2)
    build = _compute_by_distance if level in ("nominal", "ratio") else _compute_by_position
    left_out = ratings.n_units - used.n_units
    return Coefficient(f"Krippendorff's alpha, {level}", used, left_out, build(used, level), bounds=(-1.0, 1.0))


def _compute_by_distance(used: Ratings, level: Level) -> Callable[[Floats], Floats]:
    """Return alpha for scales whose distances depend only on the categories (nominal, ratio)."""
    categories, counts = used.categories, used.counts
    distances = 1 - np.eye(len(categories))
    if level == "ratio":
        sums, differences = np.add.outer(categories, categories), np.subtract.outer(categories, categories)
        distances = np.divide(differences, sums, out=np.zeros_like(sums), where=sums > 0) ** 2
    within = ((counts @ distances) * counts).sum(axis=1) / (used.per_unit - 1)

    def compute(times: Floats) -> Floats:
        pooled = times @ counts
        n = pooled.sum(axis=1)
        return 1 - divide((n - 1) * (times @ within), ((pooled @ distances) * pooled).sum(axis=1))

    return compute


def _compute_by_position(used: Ratings, level: Level) -> Callable[[Floats], Floats]:
    """Return alpha for scales whose distances are squared differences: of ratings, or of their mid-ranks (ordinal)."""
    unit, sizes = np.nonzero(used.given)[0], used.per_unit
    starts = np.cumsum(sizes) - sizes
    values = used.values[used.given]
    centred, ranking = (values - values.sum() / max(1, values.size))[None, :], Ranking(values)

    def compute(times: Floats) -> Floats:
        weights = times[:, unit]
        positions = ranking.midranks(weights) if level == "ordinal" else centred
        means = np.add.reduceat(positions, starts, axis=1) / sizes
        squares = np.add.reduceat((positions - means[:, unit]) ** 2, starts, axis=1)  # (resamples, units)
        within = squares * sizes / (sizes - 1)
        n, spread = weights.sum(axis=1), _sum_squares(positions, weights)
        return 1 - divide((n - 1) * (times * within).sum(axis=1), n * spread)

    return compute


def _sum_squares(positions: Floats, weights: Floats) -> Floats:
    """Return sums of squares about the weighted mean: (resamples,). Values below the rounding error become zero."""
    means = (weights * positions).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    squares = (weights * (positions - means) ** 2).sum(axis=1)
    return np.where(squares > SQUARES_ROUNDING * (weights * positions**2).sum(axis=1), squares, 0.0)


class Ranking:
    """The order of some values, which gives their mid-ranks for any weights."""

    def __init__(self, values: Floats) -> None:
        """Sort the values: (n,), without NaN."""
        self.order: Integers = np.argsort(values, kind="stable")
        ordered = values[self.order]
        last_of_tie = np.append(ordered[1:] != ordered[:-1], True)
        self.ends: Integers = np.flatnonzero(last_of_tie)
        tie = np.concatenate([[0], np.cumsum(last_of_tie)[:-1]])
        self.tie_of: Integers = np.empty(len(values), dtype=np.intp)
        self.tie_of[self.order] = tie

    def tie_sizes(self, times: Floats) -> Floats:
        """Return the weight of each distinct value, ascending: (resamples, n) -> (resamples, distinct values)."""
        upto = np.cumsum(times[:, self.order], axis=1)[:, self.ends]
        return np.diff(upto, axis=1, prepend=0.0)

    def midranks(self, times: Floats) -> Floats:
        """Return the mid-ranks among all values, from 1: (resamples, n) weights -> (resamples, n)."""
        sizes = self.tie_sizes(times)
        ranks: Floats = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return ranks[:, self.tie_of]


def kendalls_w(ratings: Ratings) -> Coefficient:
    """Return Kendall's coefficient of concordance of m raters who order the same n units, corrected for ties (0 to 1).

    W = 12 S / (m^2 (n^3 - n) - m T). S is the sum of squares of the units' rank sums about their mean m (n + 1) / 2,
    with mid-ranks for ties. T = sum over raters and ties of t units of t^3 - t.
    M. G. Kendall (1948), "Rank correlation methods", ch. 6; with ties as in S. Siegel (1956), "Nonparametric
    statistics", pp. 229-238. Only units that every rater rated are used. W is undefined if each rater ties all units.
    Raise ValueError for a single rater.
    """
    raters = len(ratings.raters)
    if raters < 2:
        raise ValueError("Kendall's W needs at least two raters")
    used = ratings.drop_incomplete()
    rankings = [Ranking(column) for column in used.values.T]

    def compute(times: Floats) -> Floats:
        n = times.sum(axis=1)
        sums = sum((ranking.midranks(times) for ranking in rankings), np.zeros(times.shape))
        squares = (times * (sums - raters * (n[:, None] + 1) / 2) ** 2).sum(axis=1)
        ties = sum(((t**3 - t).sum(axis=1) for t in (ranking.tie_sizes(times) for ranking in rankings)), 0 * n)
        return divide(12 * squares, raters**2 * (n**3 - n) - raters * ties)

    return Coefficient(
        "Kendall's W, corrected for ties", used, ratings.n_units - used.n_units, compute, bounds=(0.0, 1.0)
    )
