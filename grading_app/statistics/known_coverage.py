"""Intervals whose simulated coverage is below 93 %, and for how many items.

`docs/statistics.md` has the simulation. Pages show `coverage_note` beside such an interval.
"""

from __future__ import annotations

import math

SHARE = "share of answers asked once"
# The start of a measure's name, the numbers of items from and below which its coverage is low, and the lowest coverage
# that was simulated there, in per cent.
LOW_COVERAGE = (
    (SHARE, 2, 60, 91),
    ("Krippendorff's alpha", 2, 40, 92),
    ("Krippendorff's alpha", 200, math.inf, 92),
    ("Cohen's kappa", 2, 40, 91),
    ("Lin's concordance", 2, 40, 92),
    ("ICC(2,1)", 2, 40, 92),
)


def coverage_note(name: str, items: int) -> str:
    """Return a text such as 'covers about 92 % ...'; nothing if intervals of this measure cover 93 % or more."""
    for start, least, end, per_cent in LOW_COVERAGE:
        if name.startswith(start) and least <= items < end:
            return f"covers about {per_cent} % instead of 95 % in simulations of about as many items"
    return ""
