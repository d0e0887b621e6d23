"""The scores of an experiment as the results page shows them. Only this module calls the code of that page."""

from __future__ import annotations

from typing import Any

from grading_app.reports.score_summaries import ScoreSummary, summarize_scores
from grading_app.reports.stored_results import get_results
from runs_app.models import Experiment, Wave

COLUMNS = ("condition", "category", "mean", "low", "high", "se", "sd", "method", "reason", "n", "items", "effective_n")


def load_results(experiment: Experiment, wave: Wave | None, *, by_category: bool = False) -> dict[str, Any] | None:
    """Return the scores of all measures and conditions, or None until a worker has added up a large experiment."""
    cached = get_results(experiment, wave)
    if cached.value is None:
        return None
    frames = cached.value.summary
    lines = summarize_scores([*frames.ratings, *frames.grades], frames, by_category=by_category)
    return {
        "experiment": experiment.slug,
        "wave": wave.number if wave else None,
        "as_of": cached.as_of,
        "is_fresh": cached.is_fresh,
        "scores": [_write_score(line) for line in lines],
    }


def _write_score(line: ScoreSummary) -> dict[str, Any]:
    return {
        "measure": line.measure.label,
        "is_share": line.measure.is_share,
        "of": line.n + line.unread,
        **{name: getattr(line, name) for name in COLUMNS},
    }
