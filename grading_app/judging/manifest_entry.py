"""The judges of an experiment in its manifest: models, rubrics and prices."""

from __future__ import annotations

from typing import Any

from grading_app.judging import grade_conditions as grade_conditions_module
from grading_app.judging import grader_lookup
from grading_app.models import GradeCondition, Grader
from runs_app.models import Experiment
from runs_app.planning.manifests import describe_model_identity


def list_judges(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the judges of the design and the judges added later, without duplicates, with current prices."""
    added_conditions = experiment.grade_conditions.filter(kind=GradeCondition.Kind.JUDGE, grader__isnull=False)
    graders = Grader.objects.filter(pk__in=added_conditions.values("grader")).order_by("pk")
    added_graders = graders.select_related("language_model__endpoint", "rubric", "sampler", "text_set__dataset")
    graders_by_id = {
        grade_conditions_module.build_grade_condition_id(grader): grader
        for grader in [*grader_lookup.find_design_graders(experiment), *added_graders]
    }
    return [_describe_grader(key, grader) for key, grader in graders_by_id.items()]


def _describe_grader(key: str, grader: Grader) -> dict[str, Any]:
    texts = grader.text_set
    return {
        "id": key,
        "grader": grader.name,
        "rubric": {"name": str(grader.rubric), "hash": grader.rubric.content_hash},
        "texts": {"name": str(texts), "hash": texts.content_hash} if texts else None,
        "sampler": {"name": str(grader.sampler), "hash": grader.sampler.content_hash},
        **describe_model_identity(grader.language_model, grader.language_model.identity),
    }
