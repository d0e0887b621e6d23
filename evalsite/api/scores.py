"""The scores of an experiment as the results page shows them. Only this module calls the code of that page."""

from __future__ import annotations

from typing import Any

from grading_app.results.leaderboard import BoardQuery
from grading_app.results.scores import ConditionScore, Measure
from grading_app.results.stored_results import get_results
from runs_app.models import Experiment, Wave

NUMBERS = ("mean", "low", "high", "se", "sd", "method", "reason", "n", "items", "missing", "reasons", "effective_n")


def load_results(experiment: Experiment, wave: Wave | None, *, by_category: bool = False) -> dict[str, Any] | None:
    """Return the scores of all measures and conditions, or None until a worker has added up a large experiment.

    by_category: the scores of each category, of measures that are shares.
    """
    cached = get_results(BoardQuery(experiment, wave))
    if cached.value is None:
        return None
    frames = cached.value.summary
    scores = [
        _write_score(found.measure, label, category, conditions[key])
        for found in frames.scores
        for key, label in frames.labels.items()
        for category, conditions in (found.categories.items() if by_category else [(None, found.conditions)])
        if key in conditions
    ]
    return {
        "experiment": experiment.slug,
        "wave": wave.number if wave else None,
        "as_of": cached.as_of,
        "is_fresh": cached.is_fresh,
        "scores": scores,
    }


def _write_score(measure: Measure, condition: str, category: str | None, score: ConditionScore) -> dict[str, Any]:
    return {
        "measure": measure.label,
        "is_share": measure.is_share,
        "condition": condition,
        "category": category,
        "of": score.planned,
        **{name: getattr(score, name) for name in NUMBERS},
    }
