"""Paired tests: do the same items score differently the second time? Differences by item, their interval and p.

numpy and scipy are imported inside the functions, so that pages without numbers do not load them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evalsite.lib.stats.t_interval import student_quantile

FEW = 16
"""Up to so many items every pattern of signs is tried: 32,768 of them."""
SIGN_FLIPS, STUDENT = "sign flips", "paired t"
ALIKE = 1e-9  # A spread below this share of the mean is rounding error: the values are equal.


@dataclass(frozen=True, slots=True)
class Change:
    """The mean of n differences, one for each item.

    It has a standard error, an interval, and the two-sided p of "no change" by `test`. With a single item these are
    None, and `test` is empty.
    """

    n: int
    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str = ""


def change_of(
    n: int, mean: float, sd: float | None, few: Sequence[float] = (), confidence: float = 0.95
) -> Change | None:
    """Return the change from the mean and standard deviation (n - 1) of the items' differences; None for no items.

    Each item enters once, with the difference of its two means over repetitions. So repetitions never count as items.
    The standard error sd / sqrt(n) is that of clusters of one item each. The interval is Student's with n - 1 degrees
    of freedom. With at most FEW items, `few` must hold the differences, and p is the exact one of `sign_flip_p`. With
    more items, p comes from the paired t-test. Raise ValueError if n is small and `few` does not have n differences.
    """
    if n < 2 or sd is None:
        return Change(n, mean) if n else None
    se = sd / math.sqrt(n)
    reach = student_quantile(confidence, n - 1) * se
    if n > FEW:
        return Change(n, mean, se, mean - reach, mean + reach, _student_p(n, mean, sd), STUDENT)
    if len(few) != n:
        raise ValueError(f"a test of {n} items needs their {n} differences, not {len(few)}")
    return Change(n, mean, se, mean - reach, mean + reach, sign_flip_p(few), SIGN_FLIPS)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p: the share of sign patterns whose sum is as far from zero as the observed sum.

    Patterns that are further from zero count too. Without a change, the two means of an item could be swapped, so both
    signs are equally likely. The test assumes nothing else about the distribution. R. A. Fisher (1935), The design of
    experiments, section 21. Raise ValueError for no differences, or for more than FEW.
    """
    import numpy as np

    if not 0 < len(differences) <= FEW:
        raise ValueError(f"{len(differences)} differences; signs are flipped of 1 to {FEW}")
    values = np.asarray(differences, dtype=np.float64)
    # The last sign is fixed: the other half of the patterns mirrors this half.
    patterns = np.arange(2 ** (len(values) - 1))
    signs = 1 - 2 * (patterns[:, None] >> np.arange(len(values)) & 1)
    # Sums that differ only by rounding error count as equally far from zero.
    room = ALIKE * float(np.abs(values).sum())
    return float(np.mean(np.abs(signs @ values) >= abs(float(values.sum())) - room))


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
