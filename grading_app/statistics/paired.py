"""Whether the same items score otherwise a second time: differences by item, their interval and a paired test.

numpy and scipy are imported where they are used, so that pages without numbers do not pay for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evalsite.lib.stats.t_interval import student_quantile

FEW = 16
"""Up to so many items every pattern of signs is tried: 32,768 of them."""
SIGN_FLIPS, STUDENT = "sign flips", "paired t"
ALIKE = 1e-9  # A spread below this share of the mean is the rounding of means that are equal.


@dataclass(frozen=True, slots=True)
class Change:
    """The mean of n differences, one an item: standard error, interval, and the two-sided p of no change by `test`.

    All but the first two are None, and `test` empty, with a single item.
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
    """From the mean and standard deviation (n - 1) of the items' differences; None for no items.

    An item enters once, with the difference of its two means over repetitions, so repetitions never pass for items: the
    standard error sd / sqrt(n) is that of clusters of one item each, the interval Student's with n - 1 degrees of
    freedom. Up to FEW items the differences themselves are needed, in `few`, and p is exact, of `sign_flip_p`; beyond
    it is of the paired t-test. ValueError where n is small and `few` has not n differences.
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
    """The share of all patterns of signs whose sum is at least as far from zero as the one seen. Two-sided, exact.

    Without a change an item's two means might as well have come the other way round, so each sign is even: nothing is
    assumed of their distribution. R. A. Fisher (1935), The design of experiments, section 21. ValueError for no
    differences, or more than FEW.
    """
    import numpy as np

    if not 0 < len(differences) <= FEW:
        raise ValueError(f"{len(differences)} differences; signs are flipped of 1 to {FEW}")
    values = np.asarray(differences, dtype=np.float64)
    patterns = np.arange(2 ** (len(values) - 1))  # The last sign is left: the other half mirrors this one.
    signs = 1 - 2 * (patterns[:, None] >> np.arange(len(values)) & 1)
    room = ALIKE * float(np.abs(values).sum())  # Sums that are equal but for their rounding are as far.
    return float(np.mean(np.abs(signs @ values) >= abs(float(values.sum())) - room))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for being several, in their order: below 5 % at most one time in twenty where nothing changed.

    S. Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6,
    65-70: the i-th smallest of m times m - i + 1, never less than a smaller one's, at most 1.
    """
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, ps[at] * (len(ps) - rank)))
        adjusted[at] = highest
    return adjusted


def _student_p(n: int, mean: float, sd: float) -> float:
    """Where all differences are alike t has no spread to go by; then signs decide: all of one sign, or of the other."""
    from scipy.special import stdtr  # Not scipy.stats, which costs a web process 70 MB.

    if sd <= ALIKE * abs(mean):
        return 2.0 ** (1 - n) if mean else 1.0
    return float(2 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))
