"""Cached aggregates and figures. They are valid until something that they show changes."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.db.models import Max

from evalsite.lib.text.hashing import content_hash
from grading_app.models import GradeCondition
from grading_app.reports import plot_style
from grading_app.reports.figures.kinds import AnyFigure
from grading_app.reports.frames import Frames, load_frames
from grading_app.reports.waves import WavePair, compare_waves
from runs_app.models import Experiment, Point, Wave

SECONDS = 24 * 3600
LOOKS = 5  # Increase it when figures are drawn differently or show other numbers. Then browsers' copies are outdated.


def fingerprint(experiment: Experiment, wave: Wave | None) -> str:
    """Return a text that changes whenever trials end or grades are written.

    It is read from counters and indexes, never from the rows. Grade conditions count all writes, new gradings and
    replaced ones.
    """
    runs = experiment.runs.generating().filter(wave=wave) if wave else experiment.runs.generating()
    counters = runs.order_by("pk").values_list("pk", "n_pending", "n_running", "n_done", "n_failed", "n_cancelled")
    grades = GradeCondition.objects.filter(experiment=experiment).order_by("pk").values_list("pk", "changes")
    decided = Point.objects.filter(run__in=runs.values("pk")).aggregate(last=Max("decided_at"))
    content: list[Any] = [
        LOOKS,
        experiment.pk,
        wave.pk if wave else None,
        list(counters),
        list(grades),
        decided["last"].isoformat() if decided["last"] else None,
    ]
    return content_hash(content)


def kept_frames(experiment: Experiment, wave: Wave | None, state: str) -> Frames:
    """Return the aggregates of the experiment in this state (a fingerprint)."""
    found: Frames | None = cache.get_or_set(f"frames:{state}", lambda: load_frames(experiment, wave), SECONDS)
    return found or load_frames(experiment, wave)


def kept_picture(figure: AnyFigure, frames: Frames, state: str, width: int, theme: plot_style.Theme) -> bytes | None:
    """Return the figure as SVG; None if the experiment has no data for it."""

    def draw() -> bytes | None:
        frame = figure.frame(frames)
        return None if frame is None else plot_style.svg(lambda: figure.draw(frame, width), theme)

    picture: bytes | None = cache.get_or_set(f"figure:{state}:{figure.name}:{width}:{theme}", draw, SECONDS)
    return picture


def kept_waves(experiment: Experiment, a: Wave, b: Wave) -> WavePair:
    """Return the comparison of wave b with wave a at the experiment's present state."""
    key = f"waves:{fingerprint(experiment, None)}:{a.pk}:{b.pk}"
    found: WavePair | None = cache.get_or_set(key, lambda: compare_waves(experiment, a, b), SECONDS)
    return found or compare_waves(experiment, a, b)
