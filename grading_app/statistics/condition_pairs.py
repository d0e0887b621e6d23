"""Two conditions compared over their common items, and the effect of planned answers without a score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds
from grading_app.statistics.item_scores import Floats, ItemScores
from grading_app.statistics.paired import MIN_CHANGED, PairedChange, estimate_change, exact_mcnemar_p, holm

TOLERANCE = 1e-9
MAX_ENUMERATED = 13  # Differences of which all patterns of signs are tried: 8,192.
MAX_PAIRS = 66  # Of 12 conditions. A request computes all their tests in less than a second.
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class TwoByTwo:
    """Items by right and wrong under two conditions, A and B.

    p: of McNemar's exact test. odds_ratio: gained / lost; None if nothing was lost. low, high: its exact interval.
    `high` is None without an upper limit.
    """

    both_right: int
    gained: int  # Wrong under A, right under B.
    lost: int  # Right under A, wrong under B.
    both_wrong: int
    p: float
    odds_ratio: float | None
    low: float
    high: float | None

    @property
    def n(self) -> int:
        return self.both_right + self.gained + self.lost + self.both_wrong


@dataclass(frozen=True, slots=True)
class ConditionPair:
    """The comparison of condition b with condition a over their common items.

    change: b minus a, with interval and test. wins, losses, ties: the number of items on which b is higher, lower
    or equal. effect: Cohen's d, the mean difference over the SD of the differences; None without variance.
    two_by_two: for scores of 0 and 1 with one answer per item; else None. only_a, only_b: the number of items with
    a score in one condition only.
    """

    a: int
    b: int
    items: int
    change: PairedChange
    wins: int
    losses: int
    ties: int
    effect: float | None
    two_by_two: TwoByTwo | None
    only_a: int
    only_b: int


@dataclass(frozen=True, slots=True)
class PairOfDesign:
    """One of several pairs of a design. p: after Holm's correction over the pairs; None for more than MAX_PAIRS."""

    pairs: int
    p: float | None = None


def compare_conditions(scores: ItemScores, a: int, b: int, bounds: Bounds | None = None) -> ConditionPair | None:
    """Return the comparison of b with a; None without common items. Raise KeyError for an unknown condition.

    bounds: the ends of the scale; SHARE_BOUNDS if means are shares (`is_share_scale`), None if they are unknown.
    """
    column_a, column_b = scores.find_column(a), scores.find_column(b)
    has_both, differences = scores.pair_conditions(a, b)
    n = len(differences)
    if not n:
        return None
    is_share = scores.is_binary and bounds is not None and tuple(bounds) == SHARE_BOUNDS
    is_single_answer = is_share and bool((scores.n[has_both][:, [column_a, column_b]] == 1).all())
    span = bounds[1] - bounds[0] if bounds else None
    differences = np.where(np.abs(differences) <= TOLERANCE, 0.0, differences)
    changed = differences[differences != 0]
    sd = float(differences.std(ddof=1)) if n > 1 else None
    change = estimate_change(
        n,
        float(differences.mean()),
        sd,
        changed.tolist() if len(changed) < MIN_CHANGED else None,
        span=span,
        is_single_answer=is_single_answer,
    )
    if change is None:
        return None
    return ConditionPair(
        a,
        b,
        n,
        change,
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        int((differences == 0).sum()),
        float(differences.mean()) / sd if sd and sd > TOLERANCE * float(np.abs(differences).max()) else None,
        cross_tabulate(scores.mean[has_both, column_a], scores.mean[has_both, column_b]) if is_single_answer else None,
        int(((scores.n[:, column_a] > 0) & ~has_both).sum()),
        int(((scores.n[:, column_b] > 0) & ~has_both).sum()),
    )


def correct_pair(scores: ItemScores, a: int, b: int, bounds: Bounds | None = None) -> PairOfDesign | None:
    """Return p of b against a after Holm's correction over all pairs of conditions; None if there is no other pair."""
    pairs = list(combinations(scores.conditions.tolist(), 2))
    if len(pairs) > MAX_PAIRS:
        return PairOfDesign(len(pairs))
    tested = [pair for first, second in pairs if (pair := compare_conditions(scores, first, second, bounds))]
    corrected = holm([pair.change.p_or_one for pair in tested])
    p = next((p for pair, p in zip(tested, corrected, strict=True) if {pair.a, pair.b} == {a, b}), None)
    return PairOfDesign(len(tested), p) if len(tested) > 1 else None


def cross_tabulate(a: Floats, b: Floats) -> TwoByTwo:
    """Return the table of two columns of 0 and 1, item by item."""
    gained, lost = int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum())
    p, (low, high) = exact_mcnemar_p(gained, lost), odds_ratio_interval(gained, lost)
    right, wrong = int(((a == 1) & (b == 1)).sum()), int(((a == 0) & (b == 0)).sum())
    return TwoByTwo(right, gained, lost, wrong, p, gained / lost if lost else None, low, high)


def odds_ratio_interval(gained: int, lost: int, confidence: float = 0.95) -> tuple[float, float | None]:
    """Return the exact interval of the conditional odds ratio gained / lost; None without an upper limit.

    From the interval of C. J. Clopper & E. S. Pearson (1934), Biometrika 26, 404-413, of gained among all changes.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(gained, lost + 1, tail)) if gained else 0.0
    high = float(betaincinv(gained + 1, lost, 1 - tail)) if lost else 1.0
    return low / (1 - low) if low < 1 else math.inf, high / (1 - high) if high < 1 else None


def wilcoxon_p(differences: Floats) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test without zeros; None if all differences are zero.

    As in scipy, p is exact for up to 50 differences without ties and for up to 13 with ties. Else it is the normal
    approximation corrected for ties. scipy tries the 8,192 patterns of signs of 13 tied differences one at a time, in
    .7 s instead of .001 s. It loads scipy.stats, so call it in a worker or a command.
    """
    from scipy.stats import rankdata, wilcoxon

    rounded = np.round(differences, 9)  # Equal differences of decimal scores differ in their last bit.
    nonzero = rounded[rounded != 0]
    if not 0 < len(nonzero) <= MAX_ENUMERATED:
        return float(wilcoxon(nonzero).pvalue) if len(nonzero) else None
    ranks = rankdata(np.abs(nonzero))
    # Ranks are multiples of one half, so the sums of all patterns of signs are exact.
    sums = ranks @ np.indices((2,) * len(nonzero)).reshape(len(nonzero), -1)
    observed = ranks[nonzero > 0].sum()
    return min(1.0, 2 * float(min((sums <= observed).mean(), (sums >= observed).mean())))


def permutation_p_values(columns: Sequence[Floats], seed: int = 0, resamples: int = 10_000) -> list[float]:
    """Return the two-sided p of the sign-flip permutation test over items, for each column of differences.

    The sign patterns are random. The observed pattern counts as one of them, so p is never zero: B. Phipson & G. K.
    Smyth (2010), Statistical Applications in Genetics and Molecular Biology 9, article 39. Columns of equal length
    share their random signs. The same seed gives the same p.
    """
    p_values = [1.0] * len(columns)
    for n in {len(column) for column in columns}:
        positions = [position for position, column in enumerate(columns) if len(column) == n]
        values = np.column_stack([np.asarray(columns[position], dtype=np.float64) for position in positions])
        observed, random = np.abs(values.sum(axis=0)) * (1 - TOLERANCE), np.random.default_rng(seed)
        extreme, remaining = np.ones(len(positions)), resamples
        while remaining:
            rows = min(remaining, max(1, 2_000_000 // max(1, n)))
            signs = random.integers(0, 2, (rows, n), dtype=np.int8) * 2 - 1
            extreme += (np.abs(signs.astype(np.float64) @ values) >= observed).sum(axis=0)
            remaining -= rows
        for position, count in zip(positions, extreme.tolist(), strict=True):
            p_values[position] = count / (resamples + 1)
    return p_values


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values that bound the false discovery rate, in the order of `ps`.

    Y. Benjamini & Y. Hochberg (1995), Journal of the Royal Statistical Society B 57, 289-300: the i-th smallest of m is
    multiplied by m / i, and is at most the adjusted value of the next larger one.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    adjusted, lowest = [0.0] * len(p_values), 1.0
    for n_larger, index in enumerate(order):
        lowest = min(lowest, p_values[index] * len(p_values) / (len(p_values) - n_larger))
        adjusted[index] = lowest
    return adjusted


@dataclass(frozen=True, slots=True)
class MissingVerdicts:
    """The verdicts of a comparison of b with a: 1 if b is significantly higher, -1 if lower, else 0.

    with_missing: with the missing answers filled, in each worst case; empty without missing answers. at_ends: filled
    with opposite ends of the scale, else with the lowest score.
    """

    verdict: int
    with_missing: tuple[int, ...]
    at_ends: bool

    @property
    def holds(self) -> bool:
        return all(verdict == self.verdict for verdict in self.with_missing)

    def describe(self, names: tuple[str, str], *, is_error: bool = False) -> str:
        """Return a sentence for a verdict that does not hold; "" for others. names: of a and b.

        is_error: the scores are errors with the sign changed, and missing answers have the largest error.
        """
        if self.holds:
            return ""
        case = "are as far from people as the scale allows" if is_error else describe_case(self.at_ends)
        changed = {verdict for verdict in self.with_missing if verdict != self.verdict}
        if changed == {0}:
            outcome = "no difference is significant"
        elif self.at_ends and changed >= {1, -1}:
            outcome = "either can be significantly higher"
        else:
            high, low = names[::-1] if 1 in changed else names
            outcome = f"{high} is significantly {'closer' if is_error else 'higher'} than {low}"
        return f"This depends on answers without a score: if they {case}, {outcome}."


def describe_case(at_ends: bool) -> str:
    return "are at the ends of the scale" if at_ends else "count as wrong"


def describe_dependence(outcome: str, with_missing: Iterable[str], *, at_ends: bool) -> str:
    """Return a sentence if the outcome of a test is another one with missing answers filled; "" otherwise.

    outcome, with_missing: clauses, such as "no term has an effect". at_ends: as in `fill_worst_cases`.
    """
    others = [clause for clause in dict.fromkeys(with_missing) if clause != outcome]
    clauses = ", or ".join(others)
    return f"This depends on answers without a score: if they {describe_case(at_ends)}, {clauses}." if others else ""


def check_missing(
    scores: ItemScores, a: int, b: int, bounds: Bounds | None, verdict: int, *, at_ends: bool
) -> MissingVerdicts:
    """Return the verdicts of both conditions' scores with missing answers filled. bounds: the ends of the scale."""
    filled = fill_worst_cases(scores.select_conditions([a, b]), bounds, at_ends=at_ends)
    pairs = [compare_conditions(table, a, b, bounds) for table in filled]
    return MissingVerdicts(verdict, tuple(pair.change.verdict(LEVEL) for pair in pairs if pair), at_ends)


def fill_worst_cases(
    scores: ItemScores, bounds: Bounds | None, *, at_ends: bool, sides: Sequence[int | None] = (0, 1)
) -> Iterator[ItemScores]:
    """Yield the scores of conditions with their missing answers filled; nothing without missing answers.

    Answers that are right or wrong count as wrong, and other graded answers as the lowest score. Ratings have no worst
    value. So the conditions of side 0 get the low end of the scale and those of side 1 the high end, and then the other
    way round. sides: of each condition; conditions of no side get the middle of the scale.
    """
    if not scores.missing.any():
        return
    ends = find_ends(scores, bounds)
    middle = ends[0] + (ends[1] - ends[0]) / 2
    for case in (ends, ends[::-1]) if at_ends else ((ends[0], ends[0]),):
        yield scores.fill_missing([middle if side is None and at_ends else case[side or 0] for side in sides])


def find_ends(scores: ItemScores, bounds: Bounds | None) -> Bounds:
    """Return the ends of the scale; for an unknown scale, the lowest and the highest item mean."""
    if bounds is not None:
        return bounds
    if scores.is_binary or not scores.n.any():
        return 0.0, 1.0
    return scores.find_lowest_score(None), float(np.nanmax(scores.mean))
