"""Cached frames, figures and comparisons of waves. They are valid until the rows behind them change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from django.core.cache import cache
from django.db.models import Max

from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition
from grading_app.results import plot_style
from grading_app.results.figures.kinds import AnyFigure
from grading_app.results.frames import Frames, load_frames
from grading_app.results.waves import WaveComparison, compare_waves
from runs_app.models import Experiment, Point, Run, Wave

CACHE_SECONDS = 24 * 3600
FIGURE_VERSION = 6  # Increase it when figures look different or show other numbers. This outdates browsers' copies.


def fingerprint_results(experiment: Experiment, wave: Wave | None) -> str:
    """Return a text that changes whenever trials end, grades are written, or another measure becomes the primary one.

    It is read from counters and indexes, never from trials or gradings. Grade conditions count every write of a
    grading, new or replaced.
    """
    return fingerprint_many_results([experiment], wave)[experiment.pk]


def fingerprint_many_results(experiments: Collection[Experiment], wave: Wave | None = None) -> dict[int, str]:
    """Return the fingerprint of each experiment by its key, in three queries. `wave` is for a single experiment."""
    keys = [experiment.pk for experiment in experiments]
    runs = Run.objects.generating().filter(experiment__in=keys)
    runs = runs.filter(wave=wave) if wave else runs
    counters, grades = defaultdict(list), defaultdict(list)
    columns = ("pk", "n_pending", "n_running", "n_done", "n_failed", "n_cancelled")
    for key, *counts in runs.order_by("pk").values_list("experiment", *columns):
        counters[key].append(tuple(counts))
    graders = GradeCondition.objects.filter(experiment__in=keys)
    for key, *changes in graders.order_by("pk").values_list("experiment", "pk", "changes"):
        grades[key].append(tuple(changes))
    points: Any = Point.objects.filter(run__in=runs.values("pk")).order_by().values_list("run__experiment")
    decided = dict(points.annotate(last=Max("decided_at")))
    content: dict[int, list[Any]] = {
        key: [
            FIGURE_VERSION,
            key,
            wave.pk if wave else None,
            counters[key],
            grades[key],
            last.isoformat() if (last := decided.get(key)) else None,
            primary,
        ]
        for key, primary in ((experiment.pk, experiment.primary_measure) for experiment in experiments)
    }
    return {key: hash_content(parts) for key, parts in content.items()}


def get_frames(experiment: Experiment, wave: Wave | None, state: str) -> Frames:
    """Return the aggregates of the experiment. `state` is its fingerprint."""
    frames: Frames | None = cache.get_or_set(f"frames:{state}", lambda: load_frames(experiment, wave), CACHE_SECONDS)
    return frames or load_frames(experiment, wave)


def get_figure_svg(
    figure: AnyFigure, load: Callable[[], Frames], state: str, width: int, theme: plot_style.Theme
) -> bytes | None:
    """Return the figure as SVG; None if the experiment has no data for it. `load` is called only on a cache miss."""

    def draw() -> bytes | None:
        data = figure.select_data(load())
        return None if data is None else plot_style.render_svg(lambda: figure.draw(data, width), theme)

    picture: bytes | None = cache.get_or_set(f"figure:{state}:{figure.name}:{width}:{theme}", draw, CACHE_SECONDS)
    return picture


def get_wave_comparison(experiment: Experiment, a: Wave, b: Wave) -> WaveComparison:
    """Return the comparison of wave b with wave a at the experiment's current state."""
    key = f"waves:{fingerprint_results(experiment, None)}:{a.pk}:{b.pk}"
    comparison: WaveComparison | None = cache.get_or_set(key, lambda: compare_waves(experiment, a, b), CACHE_SECONDS)
    return comparison or compare_waves(experiment, a, b)
