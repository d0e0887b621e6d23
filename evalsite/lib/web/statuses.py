"""The icons and the look of each status, and bars of several segments. Pure: no Django, no I/O.

A status has a shape and a tone, so that colour is never the only signal. The widths of segments are in per cent.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Look(NamedTuple):
    """The look of a status. `icon` is a name in the sprite; `tone` is neutral, live, good, bad or hold."""

    icon: str
    tone: str


PENDING = Look("circle", "neutral")
RUNNING = Look("circle-half", "live")
DONE = Look("check-circle-fill", "good")
FAILED = Look("x-octagon-fill", "bad")
CANCELLED = Look("slash-circle", "neutral")
PAUSED = Look("pause-circle-fill", "hold")
PARTIAL = Look("exclamation-triangle", "hold")
EXPIRED = Look("clock-history", "hold")
DRAFT = Look("dash-circle-dotted", "neutral")
APPROVED = Look("patch-check-fill", "good")
ARCHIVED = Look("archive", "neutral")
UNKNOWN = Look("question-circle", "neutral")

LOOKS = {
    "pending": PENDING,
    "queued": PENDING,
    "ready": PENDING,
    "planned": PENDING,
    "waiting": PENDING,
    "running": RUNNING,
    "claimed": RUNNING,
    "in_progress": RUNNING,
    "preparing": PENDING,
    "submitting": RUNNING,
    "submitted": RUNNING,
    "collecting": RUNNING,
    "collected": DONE,
    "cancelling": PAUSED,
    "expired": EXPIRED,
    "done": DONE,
    "ok": DONE,
    "completed": DONE,
    "finished": DONE,
    "active": DONE,
    "open": RUNNING,
    "closed": DONE,
    "enough": DONE,
    "exhausted": PAUSED,
    "partial": PARTIAL,
    "aborted": FAILED,
    "failed": FAILED,
    "error": FAILED,
    "dead": FAILED,
    "stopped": FAILED,
    "cancelled": CANCELLED,
    "excluded": CANCELLED,
    "skipped": CANCELLED,
    "paused": PAUSED,
    "stopping": PAUSED,
    "draft": DRAFT,
    "imported": DRAFT,
    "used": DRAFT,
    "unverified": DRAFT,
    "approved": APPROVED,
    "frozen": APPROVED,
    "archived": ARCHIVED,
    "retired": ARCHIVED,
    "stored": ARCHIVED,
}


def get_look(status: str) -> Look:
    """Return the look of a status word. An unknown word has the look UNKNOWN instead of an error."""
    return LOOKS.get(status.lower(), UNKNOWN)


# The symbols of the vendored sprite (Bootstrap Icons).
SPRITE = "vendor/bootstrap-icons/sprite.svg"

_NAMES = """
archive arrow-clockwise arrow-left-right arrow-repeat arrow-return-left arrow-right arrow-up-right bar-chart
box-arrow-in-right box-arrow-right card-text cash-coin chat-left-text check-circle-fill check-lg check2-square
chevron-down chevron-expand chevron-left chevron-right chevron-up circle circle-half clipboard clipboard-check
clock clock-history columns-gap copy cpu dash-circle-dotted dash-lg database download exclamation-circle
exclamation-triangle eye eye-slash file-earmark-text flag funnel gear graph-up grid grid-3x3-gap hand-thumbs-up
hdd-network hourglass-split house image images info-circle journal-text key keyboard layers link-45deg list
list-check list-ul lock moon patch-check-fill pause-circle-fill pause-fill pencil people person person-circle
play-fill plus-lg question-circle robot rulers save search share shield-check shield-lock shuffle slash-circle
sliders snow sort-down sort-up speedometer2 star star-fill stop-fill sun table tag terminal three-dots toggles
trash upload x-lg x-octagon-fill
"""
ICONS = frozenset(_NAMES.split())


MIN_WIDTH = 0.8  # In per cent, so that one failure in a million stays visible.


class Segment(NamedTuple):
    """One segment of a bar. `name` selects the colour; `start` and `width` are per cent of the whole bar."""

    name: str
    amount: float
    start: float
    width: float


def compute_segments(parts: Sequence[tuple[str, float]], total: float) -> list[Segment]:
    """Return the parts above zero side by side, each at least MIN_WIDTH wide. The rest of 100 per cent stays empty."""
    visible = [(name, amount) for name, amount in parts if amount > 0]
    if total <= 0 or not visible:
        return []
    widths = [max(MIN_WIDTH, 100 * amount / total) for _, amount in visible]
    if (excess := sum(widths) - 100) > 0:
        widths[widths.index(max(widths))] -= excess
    segments, start = [], 0.0
    for (name, amount), width in zip(visible, widths, strict=True):
        segments.append(Segment(name, amount, round(start, 3), round(width, 3)))
        start += width
    return segments
