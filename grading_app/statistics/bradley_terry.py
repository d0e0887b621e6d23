"""The Bradley-Terry model of pairwise comparisons: how strongly each name is preferred over the others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalsite.lib.stats import normal_quantile, student_quantile
from grading_app.statistics.bootstrap import (
    MAX_DEGENERATE_SHARE,
    MIN_PERCENTILE_ITEMS,
    NO_SPREAD,
    TOLERANCE,
    draw_kind_counts,
)
from grading_app.statistics.ratings import Floats, Integers

NOT_FINITE = "no interval: without one of the items, some never lost"
MAX_STEPS = 50_000
PRECISION = 1e-9  # relative to the largest number of wins


class Comparison(NamedTuple):
    """One comparison of two names.

    outcome: the share of the win that goes to `first`: 1, 0, or 0.5 for a tie.
    item: the item that both answered. Comparisons of one item are resampled together. With None, the comparison is its
    own item.
    """

    first: Hashable
    second: Hashable
    outcome: float
    item: Hashable = None


class PairTally(NamedTuple):
    """The sums of the comparisons of two names on one item. A tie is half a win for each."""

    first: Hashable
    second: Hashable
    won: float
    lost: float


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The wins of each name over each other name, line by line. A tie is half a win for each.

    names: the compared names.
    kind_sizes: (kinds,), the number of items of each kind. Items of one kind have the same tally.
    kind, pair, wins: (lines,). kind is the kind of item. pair is the cell of winner and loser in a flat table of names
    x names. wins is the number of wins.
    """

    names: tuple[Hashable, ...]
    kind_sizes: Floats
    kind: Integers
    pair: Integers
    wins: Floats

    @classmethod
    def from_rows(cls, rows: Iterable[Comparison | tuple[Hashable, Hashable, float]]) -> Comparisons:
        """Return the comparisons of these rows. Names keep the order in which they first appear.

        Raise ValueError for an outcome outside 0 to 1, or for a name compared with itself.
        """
        names: dict[Hashable, int] = {}
        items: dict[Hashable, int] = {}
        lines: list[tuple[int, int, int, float]] = []  # item, winner, loser, wins
        for row_number, row in enumerate(rows):
            first, second, outcome, item = Comparison(*row)
            if first == second or not 0 <= outcome <= 1:
                raise ValueError(f"{first!r} against {second!r} with {outcome} for the first is no comparison")
            item_number = items.setdefault(("its own", row_number) if item is None else ("item", item), len(items))
            winner, loser = names.setdefault(first, len(names)), names.setdefault(second, len(names))
            lines += [(item_number, winner, loser, outcome), (item_number, loser, winner, 1 - outcome)]
        return _build_comparisons(names, np.ones(len(items)), lines)

    @classmethod
    def from_tallies(cls, tallies: Iterable[tuple[int, Iterable[PairTally]]]) -> Comparisons:
        """Return the comparisons of tallies. Each entry is a number of items and their common tally.

        The result equals that of the single comparisons, because only items are resampled. Raise ValueError for a name
        compared with itself, or for a negative number of wins.
        """
        names: dict[Hashable, int] = {}
        kind_sizes: list[float] = []
        lines: list[tuple[int, int, int, float]] = []
        for items, tally in tallies:
            for first, second, won, lost in tally:
                if first == second or min(won, lost) < 0:
                    raise ValueError(f"{first!r} against {second!r}, {won} to {lost}, is no tally")
                winner, loser = names.setdefault(first, len(names)), names.setdefault(second, len(names))
                lines += [(len(kind_sizes), winner, loser, won), (len(kind_sizes), loser, winner, lost)]
            kind_sizes.append(items)
        return _build_comparisons(names, np.array(kind_sizes), lines)

    @classmethod
    def from_table(cls, wins: ArrayLike, names: Sequence[Hashable]) -> Comparisons:
        """Return the comparisons of a table of how often the row beat the column, with half a win for a tie.

        Raise ValueError unless it is a square table of counts with a name for each row.
        """
        table = np.array(wins, dtype=np.float64)
        if table.shape != (len(names), len(names)) or not (table >= 0).all() or np.trace(table):
            raise ValueError("wins are a square table of counts, with a name a row and nothing against itself")
        pairs = np.arange(table.size)
        return Comparisons(tuple(names), np.ones(1), np.zeros_like(pairs), pairs, table.ravel())

    @property
    def items(self) -> int:
        return int(self.kind_sizes.sum())

    @property
    def total(self) -> Floats:
        """The number of times the row beat the column: (names, names)."""
        total: Floats = self.resample(self.kind_sizes[None])[0]
        return total

    def resample(self, times: Floats) -> Floats:
        """Return how often the row beat the column for each resample: (resamples, names, names).

        times: (resamples, kinds), the number of items of each kind.
        """
        size = len(self.names)
        tables = [np.bincount(self.pair, self.wins * row[self.kind], minlength=size * size) for row in times]
        stacked: Floats = np.stack(tables).astype(np.float64).reshape(len(times), size, size)
        return stacked


@dataclass(frozen=True, slots=True)
class Strength:
    """A log-strength with its interval. All log-strengths have mean 0; one more multiplies the odds of winning by e."""

    name: Hashable
    strength: float
    se: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Odds:
    """Two names compared: the difference of log-strengths with its interval, and the resulting chance to win."""

    first: Hashable
    second: Hashable
    difference: float
    se: float | None
    low: float | None
    high: float | None

    @property
    def chances(self) -> tuple[float, float | None, float | None]:
        """The chance that `first` wins, and the ends of its interval (0 to 1)."""
        low, high = (None if end is None else _convert_to_chance(end) for end in (self.low, self.high))
        return _convert_to_chance(self.difference), low, high


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """The fitted model.

    strengths: in the order of the names. covariance: (names, names), None without an interval.
    comparisons: the number of comparisons. items, resamples, degenerate: for a bootstrap, as in `Estimate`.
    """

    formula: str
    strengths: tuple[Strength, ...]
    covariance: Floats | None
    confidence: float
    interval: str
    comparisons: float
    items: int = 0
    resamples: int = 0
    degenerate: int = 0

    def without_intervals(self) -> BradleyTerry:
        """Return the strengths without intervals."""
        strengths = tuple(Strength(strength.name, strength.strength, None, None, None) for strength in self.strengths)
        return replace(self, strengths=strengths, covariance=None, interval="")

    def odds(self, first: Hashable, second: Hashable) -> Odds:
        """Return the odds of one name against another. Raise ValueError for a name that was not compared."""
        names = [strength.name for strength in self.strengths]
        i, j = names.index(first), names.index(second)
        difference = self.strengths[i].strength - self.strengths[j].strength
        if self.covariance is None:
            return Odds(first, second, difference, None, None, None)
        c = self.covariance
        se = math.sqrt(max(0.0, float(c[i, i] + c[j, j] - 2 * c[i, j])))
        reach = normal_quantile(self.confidence) * se
        return Odds(first, second, difference, se, difference - reach, difference + reach)


def _build_comparisons(
    names: Iterable[Hashable], kind_sizes: Floats, lines: list[tuple[int, int, int, float]]
) -> Comparisons:
    """Return the comparisons of rows (kind of item, winner, loser, wins)."""
    all_names, table = tuple(names), np.array(lines, dtype=np.float64).reshape(-1, 4)
    kind, winner, loser = table[:, :3].astype(np.intp).T
    return Comparisons(all_names, kind_sizes, kind, winner * len(all_names) + loser, table[:, 3])


def bradley_terry(comparisons: Comparisons, confidence: float = 0.95, smoothing: float = 0.0) -> BradleyTerry:
    """Fit strengths by maximum likelihood such that the odds of i against j are exp(s_i - s_j).

    R. A. Bradley & M. E. Terry (1952), Biometrika 39, 324-345. The fit uses the MM algorithm of D. R. Hunter (2004),
    "MM algorithms for generalized Bradley-Terry models", Annals of Statistics 32, 384-406. The covariance is the
    pseudo-inverse of the information sum n_ij p_ij (1 - p_ij), which assumes independent comparisons. Use
    `bradley_terry_by_items` if several comparisons belong to one item. A tie is half a win for each, which makes the
    intervals somewhat wide.
    smoothing: wins added in both directions to each compared pair. It allows names that never lost, or never won.
    Raise ValueError if the strengths have no finite estimate (L. R. Ford 1957), because some names were never compared
    with the others or never lost to them. The error lists these names.
    """
    wins = _add_smoothing(comparisons.total, smoothing)
    require_bounded(wins, comparisons.names)
    strengths = maximum_likelihood(wins[None])[0]
    if np.isnan(strengths).any():
        raise ValueError(
            f"no strengths found in {MAX_STEPS:,} steps, because some names were rarely compared with others"
        )
    covariance: Floats = np.linalg.pinv(fisher_information(wins, strengths), hermitian=True).astype(np.float64)
    ses, z = np.sqrt(np.maximum(np.diag(covariance), 0)), normal_quantile(confidence)
    rows = _make_result(comparisons.names, strengths, ses, strengths - z * ses, strengths + z * ses)
    total = float(comparisons.total.sum())
    formula = "Bradley-Terry" + (f", {smoothing:g} wins added each way for each pair" if smoothing else "")
    return BradleyTerry(formula, rows, covariance, confidence, "information matrix", total)


def bradley_terry_by_items(
    comparisons: Comparisons, *, seed: int, resamples: int = 1000, confidence: float = 0.95, smoothing: float = 0.0
) -> BradleyTerry:
    """Fit `bradley_terry`, with intervals over items. The comparisons of an item stay together.

    Below MIN_PERCENTILE_ITEMS items, the intervals are Student's with the jackknife's standard error, as in
    `bootstrap`. There is no interval if the strengths are not finite without one of the items. From
    MIN_PERCENTILE_ITEMS items, intervals are percentiles over resamples of items. Resamples without finite strengths
    are excluded and counted. If they are more than a tenth, there is no interval; smoothing makes them rarer. If every
    choice of items gives a name the same strength, there is no interval either, because other items may differ. The
    same seed gives the same intervals. Raise ValueError in the cases of `bradley_terry`.
    """
    fitted = bradley_terry(comparisons, confidence, smoothing)
    items, strengths = comparisons.items, np.array([strength.strength for strength in fitted.strengths])
    if items < MIN_PERCENTILE_ITEMS:
        return _add_jackknife_intervals(replace(fitted, items=items), comparisons, strengths, confidence, smoothing)
    cells = len(comparisons.kind_sizes) + len(comparisons.names) ** 2
    steps = draw_kind_counts(comparisons.kind_sizes, resamples, seed, cells)
    drawn = np.concatenate(
        [maximum_likelihood(_add_smoothing(comparisons.resample(times), smoothing)) for times in steps]
    )
    drawn = drawn[~np.isnan(drawn).any(axis=1)]
    degenerate = resamples - len(drawn)
    fitted = replace(fitted, items=items, resamples=resamples, degenerate=degenerate)
    if degenerate > MAX_DEGENERATE_SHARE * resamples:
        return fitted.without_intervals()
    if np.ptp(drawn, axis=0).min() <= TOLERANCE:
        return replace(fitted.without_intervals(), interval=NO_SPREAD)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    covariance = np.cov(drawn, rowvar=False)
    rows = _make_result(comparisons.names, strengths, np.sqrt(np.diag(covariance)), low, high)
    return replace(fitted, strengths=rows, covariance=covariance, interval=f"percentile bootstrap of {items:,} items")


def _add_jackknife_intervals(
    fitted: BradleyTerry, comparisons: Comparisons, strengths: Floats, confidence: float, smoothing: float
) -> BradleyTerry:
    """Return the fit with Student's intervals, from the strengths that leave out one item each."""
    kind_sizes, n = comparisons.kind_sizes, fitted.items
    if n < 2:
        return fitted.without_intervals()
    without = maximum_likelihood(
        _add_smoothing(comparisons.resample(kind_sizes[None, :] - np.eye(len(kind_sizes))), smoothing)
    )
    if np.isnan(without).any():
        return replace(fitted.without_intervals(), interval=NOT_FINITE)
    if np.ptp(without, axis=0).min() <= TOLERANCE:
        return replace(fitted.without_intervals(), interval=NO_SPREAD)
    deviations = without - np.average(without, axis=0, weights=kind_sizes)
    covariance: Floats = (n - 1) / n * (kind_sizes[:, None] * deviations).T @ deviations
    ses = np.sqrt(np.diag(covariance))
    reach = student_quantile(confidence, n - 1) * ses
    rows = _make_result(comparisons.names, strengths, ses, strengths - reach, strengths + reach)
    return replace(fitted, strengths=rows, covariance=covariance, interval=f"jackknife of {n:,} items, Student's t")


def maximum_likelihood(wins: Floats) -> Floats:
    """Return log-strengths of mean 0: (tables, names, names) -> (tables, names).

    Strengths are NaN for a table without a finite estimate.
    """
    games, won = wins + wins.swapaxes(1, 2), wins.sum(axis=2)
    log_strengths = np.full(won.shape, np.nan)
    remaining = np.flatnonzero(strongly_connected(wins))
    logs, games, won = np.zeros((len(remaining), wins.shape[1])), games[remaining], won[remaining]
    for _ in range(MAX_STEPS):
        if not remaining.size:
            break
        strengths = np.exp(logs)
        expected = strengths * (games / (strengths[:, :, None] + strengths[:, None, :])).sum(axis=2)
        is_open = np.abs(won - expected).max(axis=1) >= PRECISION * np.maximum(1, won.max(axis=1))
        log_strengths[remaining[~is_open]] = logs[~is_open]
        remaining, logs, games, won, expected = (values[is_open] for values in (remaining, logs, games, won, expected))
        logs = logs + np.log(won / expected)
        logs = logs - logs.mean(axis=1, keepdims=True)
    return log_strengths


def fisher_information(wins: Floats, strengths: Floats) -> Floats:
    """Return Fisher's information about the log-strengths: (names, names). Its rows add up to 0."""
    chances = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    weights = (wins + wins.T) * chances * (1 - chances)
    information: Floats = np.diag(weights.sum(axis=1)) - weights
    return information


def strongly_connected(wins: Floats) -> NDArray[np.bool_]:
    """Return True for each table in which every name beat every other, directly or through others.

    (tables, names, names) -> (tables,).
    """
    connected: NDArray[np.bool_] = np.all(_find_reachable(wins), axis=(1, 2))
    return connected


def require_bounded(wins: Floats, names: Sequence[Hashable]) -> None:
    """Raise ValueError with the names that were never compared with the others, or that never lost to them."""
    if len(names) < 2:
        raise ValueError("a comparison needs at least two entries")
    groups = np.unique(_find_reachable((wins + wins.T)[None])[0], axis=0)
    if len(groups) > 1:
        group_names = "; ".join(sorted(_join_names(names, group) for group in groups))
        raise ValueError(f"groups that were never compared with each other: {group_names}")
    is_reachable = _find_reachable(wins[None])[0]
    if is_reachable.all():
        return
    # A name that is reached only by names that it reaches itself belongs to a group at the top.
    top = next(index for index in range(len(names)) if (is_reachable[:, index] <= is_reachable[index]).all())
    group = is_reachable[:, top] & is_reachable[top]
    raise ValueError(
        f"never lost to any of the others, so their strength is unbounded: {_join_names(names, group)}; "
        "add comparisons or smoothing"
    )


def _find_reachable(wins: Floats) -> NDArray[np.bool_]:
    """Return where the row beat the column, directly or through others: (tables, names, names).

    Each name reaches itself.
    """
    size = wins.shape[1]
    is_reachable = (wins > 0) | np.eye(size, dtype=bool)
    for _ in range(max(1, math.ceil(math.log2(size)))):
        steps = is_reachable.astype(np.float32)
        is_reachable = steps @ steps > 0
    return is_reachable


def _add_smoothing(wins: Floats, smoothing: float) -> Floats:
    if smoothing < 0:
        raise ValueError("smoothing must not be negative")
    return wins + smoothing * ((wins + wins.swapaxes(-1, -2)) > 0)


def _make_result(
    names: Sequence[Hashable], strengths: Floats, ses: Floats, low: Floats, high: Floats
) -> tuple[Strength, ...]:
    columns = (strengths.tolist(), ses.tolist(), low.tolist(), high.tolist())
    return tuple(Strength(name, *row) for name, *row in zip(names, *columns, strict=True))


def _join_names(names: Sequence[Hashable], is_selected: NDArray[np.bool_]) -> str:
    return ", ".join(str(name) for name, is_member in zip(names, is_selected, strict=True) if is_member)


def _convert_to_chance(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
