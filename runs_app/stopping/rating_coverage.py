"""The simulated coverage of the interval of a mean at which a rated point stops. `coverage` has that of accuracies.

`simulate` computed the table, and a test recomputes it. Pages quote it; no other file has these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats.t_interval import VALUES_AT_EACH_END, student_quantile
from runs_app.stopping.coverage import CONFIDENCE, MAXIMUM, ROUNDING_ERROR, CoverageRange

if TYPE_CHECKING:
    import numpy as np

    Counts = np.ndarray[Any, np.dtype[np.int64]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]

SCALE = (1, 7)
LENGTH = SCALE[1] - SCALE[0]
# The shares of the scale's points among an item's ratings: typical ones, and ones that are difficult for a mean.
SHAPES: Mapping[str, tuple[float, ...]] = {
    "alike but for 3 in 100": (0, 0, 0.03, 0.97, 0, 0, 0),
    "within a point": (0, 0.01, 0.16, 0.66, 0.16, 0.01, 0),
    "around the middle": (0.01, 0.06, 0.24, 0.38, 0.24, 0.06, 0.01),
    "wide": (0.05, 0.11, 0.21, 0.26, 0.21, 0.11, 0.05),
    "each equally often": (1 / 7,) * 7,
    "both ends": (0.5, 0, 0, 0, 0, 0, 0.5),
    "mostly at one end": (0.7, 0.15, 0.07, 0.04, 0.02, 0.01, 0.01),
    "one end, 5 in 100 at the other": (0.95, 0, 0, 0, 0, 0, 0.05),
    "one end, 10 in 100 at the other": (0.9, 0, 0, 0, 0, 0, 0.1),
}
# (target half-width, items per round) -> share of intervals at the stop that cover the mean of each of SHAPES.
COVERAGE: Mapping[tuple[float, int], tuple[float, ...]] = {
    (0.15, 8): (1.000, 0.992, 0.963, 0.954, 0.952, 0.950, 0.961, 0.956, 0.957),
    (0.15, 32): (1.000, 0.989, 0.964, 0.955, 0.950, 0.951, 0.961, 0.957, 0.952),
    (0.15, 128): (1.000, 0.989, 0.964, 0.951, 0.952, 0.949, 0.955, 0.964, 0.957),
    (0.3, 8): (1.000, 0.999, 0.984, 0.963, 0.955, 0.954, 0.967, 0.975, 0.961),
    (0.3, 32): (1.000, 0.999, 0.980, 0.962, 0.954, 0.951, 0.966, 0.975, 0.966),
    (0.3, 128): (1.000, 0.990, 0.972, 0.963, 0.952, 0.954, 0.959, 0.974, 0.968),
    (0.6, 8): (1.000, 1.000, 0.998, 0.985, 0.966, 0.948, 0.970, 0.982, 0.977),
    (0.6, 32): (1.000, 1.000, 0.995, 0.981, 0.961, 0.949, 0.971, 0.986, 0.980),
    (0.6, 128): (1.000, 0.990, 0.972, 0.963, 0.956, 0.958, 0.959, 0.964, 0.963),
}


def find_nearest_coverage(target: float, per_round: int, length: int) -> CoverageRange:
    """Return the simulated coverage for the nearest setting.

    The half-width is compared as a share of the scale's length.
    """
    share, per_round = max(target / length, 1e-4), max(per_round, 1)
    nearest = min(
        sorted(COVERAGE),
        key=lambda setting: abs(math.log(setting[0] / LENGTH / share)) + abs(math.log(setting[1] / per_round)) / 4,
    )
    return CoverageRange(min(COVERAGE[nearest]), max(COVERAGE[nearest]), *nearest)


def simulate(target: float, per_round: int, shape: str, *, points: int, seed: int) -> tuple[float, float]:
    """Return the share of simulated points whose interval covers the true mean, and the mean number of items used.

    Each item is rated once, independently of the others. A point has MAXIMUM items.
    """
    import numpy as np

    draw, shares = np.random.default_rng(seed), np.array(SHAPES[shape])
    at = np.arange(SCALE[0], SCALE[1] + 1)
    true = float(shares @ at)
    counts, items, covered, n_used = np.zeros((points, at.size), dtype=np.int64), 0, 0, 0
    while len(counts):
        more = min(per_round, MAXIMUM - items)
        items += more
        counts = counts + draw.multinomial(more, shares, len(counts))
        center, margin = _compute_intervals(counts, at, items)
        stops = (margin <= target) | (items >= MAXIMUM)
        covered += int((np.abs(center - true) <= margin + ROUNDING_ERROR)[stops].sum())
        n_used += items * int(stops.sum())
        counts = counts[~stops]
    return covered / points, n_used / points


def _compute_intervals(counts: Counts, at: Counts, items: int) -> tuple[Floats, Floats]:
    """Return centers and half-widths of many points at once, by the formula of `compute_bounded_interval`."""
    import numpy as np

    both = counts + VALUES_AT_EACH_END * ((at == at[0]) | (at == at[-1]))
    many = items + 2 * VALUES_AT_EACH_END
    center = both @ at / many
    squares = both @ at**2 - many * center**2
    return center, student_quantile(CONFIDENCE, many - 1) * np.sqrt(squares / (many - 1) / many)
