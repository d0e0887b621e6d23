"""Random draws that are a pure function of their arguments, so that a repeated run gives the same results."""

import hashlib
import struct
from statistics import NormalDist

_STANDARD_NORMAL = NormalDist()
_UNPACK = struct.Struct("<4Q").unpack


def draw_uniforms(*parts: object) -> tuple[float, float, float, float]:
    """Return four independent uniforms in the open interval (0, 1), drawn for `parts`."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=32).digest()
    # With more than the top 52 bits, a value could round up to 1.0, where the normal quantile is infinite.
    return tuple(((word >> 12) + 0.5) / 2**52 for word in _UNPACK(digest))


def draw_normal(*parts: object) -> float:
    """Return one standard normal deviate, drawn for `parts`."""
    return _STANDARD_NORMAL.inv_cdf(draw_uniforms(*parts)[0])


def normal_quantile(probability: float) -> float:
    """Return the standard normal quantile. 0 and 1 give minus and plus infinity."""
    if probability <= 0.0:
        return float("-inf")
    if probability >= 1.0:
        return float("inf")
    return _STANDARD_NORMAL.inv_cdf(probability)
