"""The other answers to the item of a trial: its repetitions, then those of other conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, IntegerField, Value, When
from django.db.models.functions import Left

from runs_app.models import Run, Trial

MOST_SHOWN = 12
"""Of the repetitions and other conditions together. `[` and `]` lead through all of them."""
EXCERPT = 100


@dataclass(slots=True)
class OtherAnswer:
    """Another trial of the item. scores: (label, score) of each grader that gave it one."""

    trial: Any
    is_repetition: bool
    scores: list[tuple[str, float]] = field(default_factory=list)


def list_same_item(user: Any, trial: Trial) -> list[OtherAnswer]:
    """Return the nearest other answers to the same item on the same dimension, repetitions first, in two queries."""
    if trial.subject_id:
        return []
    runs = Run.objects.visible_to(user).filter(experiment=trial.run.experiment_id).generating()
    first = Case(When(run=trial.run_id, then=Value(0)), default=Value(1), output_field=IntegerField())
    parts = [f"run__condition__{name}" for name in ("model", "prompt", "sampler")]
    found = (
        Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item=trial.item_id)
        .filter(dimension=trial.dimension_id)
        .exclude(pk=trial.pk)
        .annotate(excerpt=Left("answer", EXCERPT))
        .select_related("run__wave", *parts)
        .defer("answer", "raw_response", "reasoning", "error", "run__condition__content", "run__errors")
        .order_by(first, "run", "sample_idx", "pk")[:MOST_SHOWN]
    )
    others = {one.pk: OtherAnswer(one, one.run_id == trial.run_id) for one in found}
    for grading in _gradings(list(others)):
        others[grading.trial_id].scores.append((grading.condition.label, grading.score))
    return list(others.values())


def _gradings(trials: list[int]) -> Any:
    model: Any = Trial._meta.get_field("gradings").related_model
    scored = model.objects.filter(trial__in=trials, score__isnull=False)
    return scored.select_related("condition__grader", "condition__rubric", "condition__panel").order_by("condition")
