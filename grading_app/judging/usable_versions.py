"""The versions of rubrics and item rubrics that may judge an experiment's answers."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from grading_app.models import Grader, RatingQueue, Rubric
from runs_app.models import Experiment, TextSet

# The lookup from a rubric or a text set to the verdicts that were given by it.
VERDICTS: dict[Any, str] = {Rubric: "grade_conditions", TextSet: "graders__grade_conditions"}


def select_usable(kind: Any, experiment: Experiment) -> Any:
    """Return the approved versions, and the imported ones that came with this study.

    Verdicts by an imported version cannot be given here before this function allows it. So verdicts of an imported
    study by it came with the study.
    """
    approved = Q(status=kind.Status.APPROVED)
    if not experiment.imported_from:
        return kind.objects.filter(approved)
    judged_by_it = kind.objects.filter(
        Q(**{f"{VERDICTS[kind]}__experiment": experiment})
        | Q(rating_queues__in=RatingQueue.objects.filter(experiment=experiment).exclude(status="draft"))
    )
    return kind.objects.filter(approved | Q(status=kind.Status.IMPORTED, pk__in=judged_by_it.values("pk")))


def is_usable(row: Rubric | TextSet, experiment: Experiment) -> bool:
    """Return whether this version may judge the experiment's answers. An approved one needs no query."""
    kind = type(row)
    return row.status == kind.Status.APPROVED or select_usable(kind, experiment).filter(pk=row.pk).exists()


def select_usable_graders(experiment: Experiment) -> Any:
    """Return the graders in use whose rubric may judge this experiment's answers."""
    return Grader.objects.in_use().filter(rubric__in=select_usable(Rubric, experiment).values("pk"))
