"""Paired tests: the mean difference of two scores of the same items, with its interval and p.

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

MAX_EXACT_ITEMS = 16
"""The maximum number of items for the exact test over all 32,768 patterns of signs."""
SIGN_FLIPS, STUDENT, MCNEMAR = "sign flips", "paired t", "McNemar's score test"
TOLERANCE = 1e-9  # A spread below this share of the mean is rounding error, so the values are equal.
NO_SPREAD = "all differences are equal, so their spread is unknown"
TOO_FEW = "an interval needs six items"
STEPS = 10
"""A usual step of a scale is one point, or a tenth of a longer scale."""


@dataclass(frozen=True, slots=True)
class Change:
    """The mean of n differences, one for each item.

    p: the two-sided p of `test` that there is no change. For a single item, se, interval and p are None and `test` is
    empty. The interval contains 0 if and only if p is above 1 - confidence. Without an interval, `reason` says why.
    """

    n: int
    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str = ""
    reason: str = ""

    @property
    def p_or_one(self) -> float:
        """The p, or 1 without a test, for corrections over several tests."""
        return 1.0 if self.p is None else self.p


def estimate_change(
    n: int,
    mean: float,
    sd: float | None,
    differences: Sequence[float] = (),
    confidence: float = 0.95,
    *,
    span: float | None = None,
    is_single_answer: bool = False,
) -> Change | None:
    """Return the change from the mean and standard deviation (n - 1) of the items' differences; None for no items.

    Each item enters once, with the difference of its two means over repetitions. The standard error is sd / sqrt(n).
    differences: the differences, for at most MAX_EXACT_ITEMS items. Then p is exact (`sign_flip_p`), and the interval
    is that of `_interval_for_few`.
    span: the length of the scale; None if it is unknown. is_single_answer: all differences are -1, 0 or 1.
    For more items, single answers on a scale of length 1 have Tango's interval and McNemar's p. Other scores with a
    span have the paired t-test of the differences and two more (`_append_two_steps`). Without a span, it is the plain
    paired t-test, which has no interval if all differences are equal.
    Raise ValueError if n is at most MAX_EXACT_ITEMS and there are not n differences.
    """
    if n < 2 or sd is None:
        return Change(n, mean) if n else None
    if span is not None and abs(mean) > span:
        span = None  # These scores are not on this scale.
    se = sd / math.sqrt(n)
    if n > MAX_EXACT_ITEMS:
        return _estimate_many(n, mean, sd, confidence, span, is_single_answer)
    if len(differences) != n:
        raise ValueError(f"a test of {n} items needs their {n} differences, not {len(differences)}")
    p, ends = sign_flip_p(differences), _interval_for_few(differences, mean, sd, confidence, span)
    if ends is None:
        return Change(n, mean, se, p=p, test=SIGN_FLIPS, reason=TOO_FEW if sd else NO_SPREAD)
    return Change(n, mean, se, *ends, p, SIGN_FLIPS)


def _estimate_many(
    n: int, mean: float, sd: float, confidence: float, span: float | None, is_single_answer: bool
) -> Change:
    se = sd / math.sqrt(n)
    if is_single_answer and span == 1:
        gained, lost = _count_gained_and_lost(n, mean, sd)
        return Change(n, mean, se, *tango_interval(gained, lost, n, confidence), mcnemar_p(gained, lost), MCNEMAR)
    if span is not None:
        low, high = _interval_with_two_steps(n, mean, sd, span, confidence)
        return Change(n, mean, se, low, high, _student_p(*_append_two_steps(n, mean, sd, span)), STUDENT)
    if sd <= TOLERANCE * abs(mean):
        return Change(n, mean, se, p=_student_p(n, mean, sd), test=STUDENT, reason=NO_SPREAD)
    reach = student_quantile(confidence, n - 1) * se
    return Change(n, mean, se, mean - reach, mean + reach, _student_p(n, mean, sd), STUDENT)


def _interval_for_few(
    differences: Sequence[float], mean: float, sd: float, confidence: float, span: float | None
) -> tuple[float, float] | None:
    """Return the differences that the sign-flip test does not reject, widened for unseen differences.

    Scores are few and discrete, so items with equal scores so far may still differ later. The interval therefore also
    contains Tango's interval if all differences are -1, 0 or 1, or else that of `_interval_with_two_steps`. Towards
    zero, it ends where the test does, so it contains 0 if and only if p is above 1 - confidence. With five items, the
    test rejects nothing, and the widened interval contains 0.
    Return None if the span is unknown and the test alone gives no interval or an interval without width.
    """
    exact = sign_flip_interval(differences, confidence)
    if span is None:
        return exact if exact is not None and exact[1] - exact[0] > TOLERANCE * abs(mean) else None
    if span == 1 and all(value in (-1, 0, 1) for value in differences):
        widened = tango_interval(*_count_gained_and_lost(len(differences), mean, sd), len(differences), confidence)
    else:
        widened = _interval_with_two_steps(len(differences), mean, sd, span, confidence)
    low, high = exact or (min(0.0, mean), max(0.0, mean))
    return (low if low > 0 else min(low, widened[0])), (high if high < 0 else max(high, widened[1]))


def sign_flip_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the shifts that `sign_flip_p` does not reject; None if it rejects none, as for fewer than six items.

    A split of the items into two groups counts for p at the shift d if d lies between the means of the groups. Each of
    these ranges contains the mean of all items. So the ends are the k-th lowest lower end and the k-th highest upper
    end, for k = (1 - confidence) 2^(n - 1), rounded down. J. A. Hartigan (1969), "Using subsample values as typical
    values", JASA 64, 1303-1317. Raise ValueError for no differences, or for more than MAX_EXACT_ITEMS.
    """
    import numpy as np

    values, groups = _flip_signs(differences)
    index = int((1 - confidence) * len(groups) + 1e-9) - 1
    if index < 0:
        return None
    sizes = groups[1:].sum(axis=1)  # Without the pattern that leaves no item.
    sums = groups[1:] @ values
    means = np.stack([sums / sizes, (values.sum() - sums) / (len(values) - sizes)])
    low, high = np.partition(means.min(axis=0), index)[index], np.partition(-means.max(axis=0), index)[index]
    return float(low), float(-high)


def _count_gained_and_lost(n: int, mean: float, sd: float) -> tuple[int, int]:
    """Return how many differences are 1 and how many are -1, if all others are 0."""
    net, changed = n * mean, (n - 1) * sd**2 + n * mean**2
    return round((changed + net) / 2), round((changed - net) / 2)


def _append_two_steps(n: int, mean: float, sd: float, span: float) -> tuple[int, float, float]:
    """Return n, mean and sd of the differences and of two more: a usual step up, and a usual step down."""
    step, total = min(span, max(1.0, span / STEPS)), n + 2
    center = n * mean / total
    squares = (n - 1) * sd**2 + n * (mean - center) ** 2 + (step - center) ** 2 + (step + center) ** 2
    return total, center, math.sqrt(squares / (total - 1))


def _interval_with_two_steps(n: int, mean: float, sd: float, span: float, confidence: float) -> tuple[float, float]:
    """Return Student's interval over the differences and two more: a usual step up, and a usual step down.

    So it has a width even if all differences are equal. For differences of -1, 0 and 1, it is the interval of D. G.
    Bonett & R. M. Price (2012), "Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data", Journal of Educational and Behavioral Statistics 37, 479-488, with t in place of z.
    """
    total, center, spread = _append_two_steps(n, mean, sd, span)
    reach = student_quantile(confidence, total - 1) * spread / math.sqrt(total)
    return max(-span, min(mean, center - reach)), min(span, max(mean, center + reach))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p: the share of sign patterns whose sum is as far from zero as the observed sum.

    Patterns further from zero count, too. Without a change, the two means of an item could be swapped, so both signs
    are equally likely. The test assumes nothing else about the distribution. R. A. Fisher (1935), The design of
    experiments, section 21. Raise ValueError for no differences, or for more than MAX_EXACT_ITEMS.
    """
    import numpy as np

    values, groups = _flip_signs(differences)
    # Sums that differ only by rounding error count as equally far from zero.
    tolerance = TOLERANCE * float(np.abs(values).sum())
    total = float(values.sum())
    return float(np.mean(np.abs(total - 2 * (groups @ values)) >= abs(total) - tolerance))


def _flip_signs(differences: Sequence[float]) -> tuple[Any, Any]:
    """Return the differences as an array, and the patterns of flipped signs."""
    import numpy as np

    if not 0 < len(differences) <= MAX_EXACT_ITEMS:
        raise ValueError(f"the sign-flip test takes 1 to {MAX_EXACT_ITEMS} differences, not {len(differences)}")
    return np.asarray(differences, dtype=np.float64), _list_sign_patterns(len(differences))


@lru_cache(maxsize=4)
def _list_sign_patterns(n: int) -> Any:
    """Return the patterns of flipped signs: (2^(n - 1), n) of 0 and 1, the first without flips.

    The last sign is never flipped, because the other half of the patterns mirrors this half.
    """
    import numpy as np

    return (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1).astype(np.float64)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of `ps`.

    If nothing changed, the chance that any adjusted value falls below 5 % is at most 5 %. S. Holm (1979), "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 65-70. The i-th smallest of m
    values is multiplied by m - i + 1. It is at least the adjusted value of each smaller one, and at most 1.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def _student_p(n: int, mean: float, sd: float) -> float:
    """Return the two-sided p of the paired t-test.

    If all differences are equal, t is undefined. Then p is the chance that all signs are the same.
    """
    from scipy.special import stdtr  # Not scipy.stats, which costs a web process 70 MB.

    if sd <= TOLERANCE * abs(mean):
        return 2.0 ** (1 - n) if mean else 1.0
    return float(2 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))
