"""The random stream of a point, seeded exactly as in ReasonScape.

The seed and the parameters in the file determine the stream; the count, defaults and the task's name do not. So more
cases at a point continue its stream, and the same parameters give the same cases in every file. Numbers are compared as
text: 1 and 1.0 are different parameters here. A definition must therefore be stored as text, or in another form that
preserves the difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from datasets_app.generators.generator import COUNT

SEED = 42


def compute_seed_base(params: Mapping[str, Any]) -> int:
    """Return the number that the parameters add to the seed: the last eight hexadecimal digits of a SHA-256."""
    text = json.dumps({name: value for name, value in params.items() if name != COUNT}, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[-8:], 16)


def make_point_rng(params: Mapping[str, Any], seed: int = SEED) -> Random:
    """Return a new random stream at the start of a point's cases."""
    return Random(seed + compute_seed_base(params))  # noqa: S311 - cases must be reproducible, not secret.
