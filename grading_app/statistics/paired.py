"""Paired tests: do the same items score differently the second time? Differences by item, their interval and p.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.paired_shares import mcnemar_p, tango_interval

FEW = 16
"""The maximum number of items for which every pattern of signs is tried: 32,768 patterns."""
SIGN_FLIPS, STUDENT, MCNEMAR = "sign flips", "paired t", "McNemar's score test"
ALIKE = 1e-9  # A spread below this share of the mean is rounding error: the values are equal.
NO_SPREAD = "all differences are equal, so their spread is unknown"
TOO_FEW = "an interval needs six items"
STEPS = 10
"""A usual step of a scale is one point, or a tenth of a longer scale."""


@dataclass(frozen=True, slots=True)
class Change:
    """The mean of n differences, one for each item.

    It has a standard error, an interval, and the two-sided p of "no change" by `test`. With a single item these are
    None, and `test` is empty. The interval contains 0 if and only if p is above 1 - confidence. Without an interval,
    `reason` says why.
    """

    n: int
    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str = ""
    reason: str = ""


def estimate_change(
    n: int,
    mean: float,
    sd: float | None,
    few: Sequence[float] = (),
    confidence: float = 0.95,
    *,
    span: float | None = None,
    once: bool = False,
) -> Change | None:
    """Return the change from the mean and standard deviation (n - 1) of the items' differences; None for no items.

    Each item enters once, with the difference of its two means over repetitions. So repetitions never count as items.
    The standard error is sd / sqrt(n).
    With at most FEW items, `few` must hold the differences. p is the exact one of `sign_flip_p`, and the interval is
    `_interval_of_few`.
    span: the length of the scale, None if it is unknown. once: all differences are -1, 0 or 1, on a scale of length 1.
    With more items and `once`, the interval is Tango's and p is McNemar's. With another span, both are those of the
    paired t-test of the differences and two more, `_with_two_more`. Without a span, it is the paired t-test itself.
    Then there is no interval if all differences are equal.
    Raise ValueError if n is small and `few` does not have n differences.
    """
    if n < 2 or sd is None:
        return Change(n, mean) if n else None
    if span is not None and abs(mean) > span:
        span = None  # These scores are not on that scale.
    se = sd / math.sqrt(n)
    if n > FEW:
        return _estimate_many(n, mean, sd, confidence, span, once)
    if len(few) != n:
        raise ValueError(f"a test of {n} items needs their {n} differences, not {len(few)}")
    p, ends = sign_flip_p(few), _interval_for_few(few, mean, sd, confidence, span)
    if ends is None:
        return Change(n, mean, se, p=p, test=SIGN_FLIPS, reason=TOO_FEW if sd else NO_SPREAD)
    return Change(n, mean, se, *ends, p, SIGN_FLIPS)


def _estimate_many(n: int, mean: float, sd: float, confidence: float, span: float | None, once: bool) -> Change:
    se = sd / math.sqrt(n)
    if once and span == 1:
        gained, lost = _count_gained_and_lost(n, mean, sd)
        return Change(n, mean, se, *tango_interval(gained, lost, n, confidence), mcnemar_p(gained, lost), MCNEMAR)
    if span is not None:
        low, high = _interval_with_two_steps(n, mean, sd, span, confidence)
        return Change(n, mean, se, low, high, _student_p(*_append_two_steps(n, mean, sd, span)), STUDENT)
    if sd <= ALIKE * abs(mean):
        return Change(n, mean, se, p=_student_p(n, mean, sd), test=STUDENT, reason=NO_SPREAD)
    reach = student_quantile(confidence, n - 1) * se
    return Change(n, mean, se, mean - reach, mean + reach, _student_p(n, mean, sd), STUDENT)


def _interval_for_few(
    few: Sequence[float], mean: float, sd: float, confidence: float, span: float | None
) -> tuple[float, float] | None:
    """Return the differences that the sign-flip test does not reject, widened for unseen differences.

    Scores are few and discrete, so items that were equal so far may still differ later. The interval therefore also
    contains Tango's interval if all differences are -1, 0 or 1, or else the one of `_with_two_more`. Towards zero it
    ends where the test does, so it contains 0 if and only if p is above 1 - confidence. The test rejects nothing with
    five items; then the widened interval contains 0.
    Return None if the span is unknown and the test alone gives no end or no width.
    """
    tested = sign_flip_interval(few, confidence)
    if span is None:
        return tested if tested is not None and tested[1] - tested[0] > ALIKE * abs(mean) else None
    if span == 1 and all(value in (-1, 0, 1) for value in few):
        wide = tango_interval(*_count_gained_and_lost(len(few), mean, sd), len(few), confidence)
    else:
        wide = _interval_with_two_steps(len(few), mean, sd, span, confidence)
    low, high = tested or (min(0.0, mean), max(0.0, mean))
    return (low if low > 0 else min(low, wide[0])), (high if high < 0 else max(high, wide[1]))


def sign_flip_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the shifts that `sign_flip_p` does not reject; None if it rejects none, as with fewer than six items.

    A split of the items in two groups counts for p at the shift d if d lies between the means of the groups. Each of
    these ranges contains the mean of all items. So the ends are the k-th lowest lower end and the k-th highest upper
    end, for k = (1 - confidence) 2^(n - 1), rounded down. J. A. Hartigan (1969), "Using subsample values as typical
    values", JASA 64, 1303-1317. Raise ValueError for no differences, or for more than FEW.
    """
    import numpy as np

    values, groups = _flip_signs(differences)
    at = int((1 - confidence) * len(groups) + 1e-9) - 1
    if at < 0:
        return None
    sizes = groups[1:].sum(axis=1)  # Without the pattern that leaves no item.
    sums = groups[1:] @ values
    means = np.stack([sums / sizes, (values.sum() - sums) / (len(values) - sizes)])
    low, high = np.partition(means.min(axis=0), at)[at], np.partition(-means.max(axis=0), at)[at]
    return float(low), float(-high)


def _count_gained_and_lost(n: int, mean: float, sd: float) -> tuple[int, int]:
    """Return how many differences are 1 and how many are -1, if all others are 0."""
    more, either = n * mean, (n - 1) * sd**2 + n * mean**2
    return round((either + more) / 2), round((either - more) / 2)


def _append_two_steps(n: int, mean: float, sd: float, span: float) -> tuple[int, float, float]:
    """Return n, mean and sd of the differences and of two more: a usual step up, and one down."""
    step, many = min(span, max(1.0, span / STEPS)), n + 2
    center = n * mean / many
    squares = (n - 1) * sd**2 + n * (mean - center) ** 2 + (step - center) ** 2 + (step + center) ** 2
    return many, center, math.sqrt(squares / (many - 1))


def _interval_with_two_steps(n: int, mean: float, sd: float, span: float, confidence: float) -> tuple[float, float]:
    """Return Student's interval over the differences and two more: a usual step up, and one down.

    So it has a width also if all differences are equal. For differences of -1, 0 and 1 it is the interval of D. G.
    Bonett & R. M. Price (2012), "Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data", Journal of Educational and Behavioral Statistics 37, 479-488, with t in place of z.
    """
    many, center, spread = _append_two_steps(n, mean, sd, span)
    reach = student_quantile(confidence, many - 1) * spread / math.sqrt(many)
    return max(-span, min(mean, center - reach)), min(span, max(mean, center + reach))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p: the share of sign patterns whose sum is as far from zero as the observed sum.

    Patterns that are further from zero count too. Without a change, the two means of an item could be swapped, so both
    signs are equally likely. The test assumes nothing else about the distribution. R. A. Fisher (1935), The design of
    experiments, section 21. Raise ValueError for no differences, or for more than FEW.
    """
    import numpy as np

    values, groups = _flip_signs(differences)
    # Sums that differ only by rounding error count as equally far from zero.
    room = ALIKE * float(np.abs(values).sum())
    total = float(values.sum())
    return float(np.mean(np.abs(total - 2 * (groups @ values)) >= abs(total) - room))


def _flip_signs(differences: Sequence[float]) -> tuple[Any, Any]:
    """Return the differences as an array, and the patterns of flipped signs."""
    import numpy as np

    if not 0 < len(differences) <= FEW:
        raise ValueError(f"{len(differences)} differences; signs are flipped of 1 to {FEW}")
    return np.asarray(differences, dtype=np.float64), _list_sign_patterns(len(differences))


@lru_cache(maxsize=4)
def _list_sign_patterns(n: int) -> Any:
    """Return the patterns of flipped signs: (2^(n - 1), n) of 0 and 1, the first without any.

    The last sign stays: the other half of the patterns mirrors this half.
    """
    import numpy as np

    return (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1).astype(np.float64)


def holm(ps: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of `ps`.

    If nothing changed, some adjusted value falls below 5 % at most one time in twenty. S. Holm (1979), "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 65-70. The i-th smallest of m
    values is multiplied by m - i + 1. It is never less than the adjusted value of a smaller one, and at most 1.
    """
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, ps[at] * (len(ps) - rank)))
        adjusted[at] = highest
    return adjusted


def _student_p(n: int, mean: float, sd: float) -> float:
    """Return the two-sided p of the paired t-test.

    If all differences are equal, t is not defined. Then p is the chance that all signs are the same.
    """
    from scipy.special import stdtr  # Not scipy.stats, which costs a web process 70 MB.

    if sd <= ALIKE * abs(mean):
        return 2.0 ** (1 - n) if mean else 1.0
    return float(2 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))
