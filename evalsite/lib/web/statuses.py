"""The look of each status: a shape and a tone, so that colour is never the only signal."""

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
}


def get_look(status: str) -> Look:
    """Return the look of a status word. An unknown word has the look UNKNOWN instead of an error."""
    return LOOKS.get(status.lower(), UNKNOWN)
