"""The dependence of a verdict on planned answers that have no score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.condition_pairs import compare_conditions
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import ItemScores, find_lowest_score

LEVEL = 0.05


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
    value, so the conditions of side 0 get the low and those of side 1 the high end of the scale, then the other way
    round. sides: of each condition; conditions of no side get the middle of the scale.
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
    return find_lowest_score(scores, None), float(np.nanmax(scores.mean))
