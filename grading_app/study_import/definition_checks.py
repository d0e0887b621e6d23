"""The checks of imported definitions by their own models, and of conditions against the rows that they copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from datasets_app.models import Dataset
from evalsite.lib.text.hashing import hash_content
from grading_app.models import GradeCondition, Grader, Panel, RatingQueue, Rubric
from grading_app.publish.export.snapshot_check import SnapshotFileError
from runs_app.models import (
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    Prompt,
    Sampler,
    TextSet,
)
from runs_app.models.designs import Versioned
from runs_app.models.priced_resource import PricedResource

DEFINITIONS: tuple[type[models.Model], ...] = (
    Dataset, Endpoint, LanguageModel, Prompt, Sampler, Dimension, TextSet, Experiment, Rubric, Grader, Panel,
    RatingQueue,
)  # fmt: skip
CHUNK = 50  # Definitions can be large. They are never all in memory.
NewKeys = Mapping[type[models.Model], list[int]]


def check_definitions(new: NewKeys, file_name: str) -> None:
    """Raise SnapshotFileError for a definition that nobody could save on this site. new: the keys of new rows."""
    for model in DEFINITIONS:
        for row in model._default_manager.filter(pk__in=new.get(model, [])).iterator(CHUNK):
            if problem := _find_problem(row):
                raise SnapshotFileError(f"{file_name}: {model._meta.verbose_name} {row}: {problem}")
    for problem in _find_condition_problems(new.get(Condition, [])):
        raise SnapshotFileError(f"{file_name}: {problem}")


def _find_problem(row: Any) -> str:
    if isinstance(row, Versioned) and hash_content(row.content) != row.content_hash:
        return "it is not what its hash says"
    try:
        row.clean_fields(exclude=[field.name for field in row._meta.concrete_fields if field.is_relation])
        if not isinstance(row, PricedResource):  # Placeholders without a key or address: no call depends on them.
            row.clean()
    except ValidationError as error:
        return "; ".join(f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items())
    return ""


def _find_condition_problems(keys: list[int]) -> Iterator[str]:
    """Yield the conditions whose calls would not be those that their rows, and so their costs, describe."""
    conditions = Condition.objects.filter(pk__in=keys).select_related("model__endpoint", "prompt", "sampler")
    rubrics = dict(
        GradeCondition.objects.filter(judge_condition__in=keys).values_list("judge_condition", "rubric__messages")
    )
    for condition in conditions.iterator(CHUNK):
        expected = {"model": condition.model.identity, "sampler": condition.sampler.content}
        if condition.prompt is not None:
            expected["prompt"] = condition.prompt.content
        for name, content in expected.items():
            if hash_content(condition.content[name]) != hash_content(content):
                yield f"condition {condition}: its {name} is not that of the row to which it refers"
        messages = rubrics.get(condition.pk)
        if messages is not None and condition.content["prompt"]["messages"] != messages:
            yield f"condition {condition}: its prompt is not that of the rubric of its judge"
