"""The other answers to a trial's item: its repetitions, then the answers of other conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, IntegerField, Value, When
from django.db.models.functions import Left

from runs_app.condition_labels import load_labels
from runs_app.models import Trial

MAX_SHOWN = 12
"""Repetitions and other conditions together. The keys `[` and `]` step through all of them."""
EXCERPT = 100


@dataclass(slots=True)
class OtherAnswer:
    """Another trial of the item. scores: the label and score of each of its graders."""

    trial: Any
    condition: str
    is_repetition: bool
    scores: list[tuple[str, float]] = field(default_factory=list)


def list_other_answers(user: Any, trial: Trial) -> list[OtherAnswer]:
    """Return the nearest other answers to the same item on the same dimension, repetitions first, in three queries."""
    if trial.subject_id:
        return []
    runs = trial.run.experiment.answer_runs.visible_to(user)
    first = Case(When(run=trial.run_id, then=Value(0)), default=Value(1), output_field=IntegerField())
    labels = load_labels([trial.run.experiment_id])
    trials = (
        Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item=trial.item_id)
        .filter(dimension=trial.dimension_id)
        .exclude(pk=trial.pk)
        .annotate(excerpt=Left("answer", EXCERPT))
        .select_related("run__wave")
        .defer("answer", "raw_response", "messages", "reasoning", "error", "run__errors")
        .order_by(first, "run", "sample_idx", "pk")[:MAX_SHOWN]
    )
    answers = {
        other.pk: OtherAnswer(other, labels[other.run.condition_id], other.run_id == trial.run_id) for other in trials
    }
    model: Any = Trial._meta.get_field("gradings").related_model
    scored = model.objects.filter(trial__in=list(answers), score__isnull=False)
    parts = ("condition__grader", "condition__rubric", "condition__panel")
    for grading in scored.select_related(*parts).order_by("condition"):
        answers[grading.trial_id].scores.append((grading.condition.label, grading.score))
    return list(answers.values())
