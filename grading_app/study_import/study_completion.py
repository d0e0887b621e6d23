"""The checks of imported definitions, and the completion of a study from all its rows: counters and money.

A counter in a file is a claim. All counters of an imported study are computed from its rows, by the rules of
`grading_app/grading/consistency_check.py`. So are the reservations of the calls that this site may still make for it:
verdicts, and texts about items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Max

from datasets_app.models import Dataset
from evalsite.lib.sql import OctetLength
from evalsite.lib.text.hashing import hash_content
from grading_app.grading.consistency_check import compare_points, recount
from grading_app.grading.judging.judging_costs import FILLER
from grading_app.models import GradeCondition, Grader, Panel, RatingQueue, Rubric
from grading_app.publish.export.snapshot_check import SnapshotFileError
from runs_app.engine.requests import build_run_design
from runs_app.llm import judge_prompt, prompts
from runs_app.models import (
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    ItemText,
    LanguageModel,
    Point,
    Prompt,
    Run,
    Sampler,
    TextSet,
    Trial,
)
from runs_app.models.designs import Versioned
from runs_app.models.engine_owned_columns import PricedResource
from runs_app.planning.token_bounds import bound_input_tokens
from runs_app.pricing.costs import CallBounds


def complete_study(experiment: Experiment) -> None:
    """Set the counters of an imported study, and the reservations of its runs.

    Raise SnapshotFileError for a file with live runs, because a worker would claim their trials, and for points whose
    counts led to another decision than their trials.
    """
    recount(experiment)
    runs = Run.objects.filter(experiment=experiment)
    live = runs.filter(status__in=Run.UNDER_WAY) | runs.filter(n_running__gt=0)
    if live.exists() or Trial.objects.filter(run__in=runs, status=Trial.Status.RUNNING).exists():
        raise SnapshotFileError("the file holds live runs, which no snapshot has")
    # The counts of each point must be those of its trials and grades.
    points = Point.objects.filter(run__in=runs)
    if (drawn := points.exclude(items__len=F("n_items")).first()) is not None:
        raise SnapshotFileError(f"{_name_point(drawn.pk)}: n_items is not the number of its items")
    for difference in compare_points(experiment):
        name = _name_point(int(difference.row.removeprefix("point ")))
        raise SnapshotFileError(
            f"{name}: {difference.counter} is {difference.counted}, and its rows say {difference.in_rows}"
        )
    _bound_calls(experiment)


def _bound_calls(experiment: Experiment) -> None:
    """Set the reservations of runs that may make calls here, from the requests that workers would build of their rows.

    Raise SnapshotFileError if an open call asks about an excluded item, because no bound covers these.
    """
    stages = (Condition.Stage.GENERATE, Condition.Stage.EXTERNAL)
    runs = Run.objects.filter(experiment=experiment).exclude(condition__stage__in=stages)
    excluded = Trial.objects.filter(run__in=runs, item__excluded=True).exclude(status=Trial.Status.DONE)
    if (trial := excluded.select_related("item").first()) is not None:
        key = trial.asked_item.key
        raise SnapshotFileError(
            f"rows/runs_app_trial.jsonl: a call that is not done asks about item {key}, which is excluded"
        )
    for run in runs.with_design():
        trials = run.trials.order_by()
        answers = trials.aggregate(subject=Max(OctetLength("subject__answer")), rival=Max(OctetLength("rival__answer")))
        answer = FILLER * max(answers["subject"] or 0, answers["rival"] or 0)
        design = build_run_design(run)
        texts = (
            ItemText.objects.filter(text_set__content_hash=design.texts) if design.texts else ItemText.objects.none()
        )
        variables = {
            **design.rubric_variables,
            **judge_prompt.build_answer_variables(answer, None),
            **judge_prompt.build_answer_variables(answer, answer),
            judge_prompt.ITEM_RUBRIC: FILLER * (texts.aggregate(longest=Max(OctetLength("text")))["longest"] or 0),
        }
        closing = [prompts.Turn(role="user", content=design.closing)] if design.closing else []
        prompt = Prompt(messages=[*design.turns, *closing], answer_format=design.answer_format)
        dimensions = list(Dimension.objects.filter(pk__in=trials.values("dimension")))
        model, sampler = run.condition.model, run.condition.sampler
        run.request_tokens = bound_input_tokens(model, prompt, experiment.dataset, dimensions, variables)
        output_limit = sampler.compute_output_ceiling(model.max_output_tokens)
        bounds = CallBounds(run.ceiling_usd, run.request_tokens, output_limit)
        Run.objects.filter(pk=run.pk).update(**bounds.columns)


def _name_point(key: int) -> str:
    point = Point.objects.select_related("run__condition", "dimension").get(pk=key)
    return f"rows/runs_app_point.jsonl: point {point.label} of {point.run.condition}"


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
            name = f"{file_name}: {model._meta.verbose_name} {row}"
            if isinstance(row, Versioned) and hash_content(row.content) != row.content_hash:
                raise SnapshotFileError(f"{name}: it is not what its hash says")
            try:
                row.clean_fields(exclude=[field.name for field in row._meta.concrete_fields if field.is_relation])
                if not isinstance(row, PricedResource):  # Placeholders without a key or address: no call needs them.
                    row.clean()
            except ValidationError as error:
                problems = "; ".join(f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
                raise SnapshotFileError(f"{name}: {problems}") from error
    for problem in _find_condition_problems(new.get(Condition, [])):
        raise SnapshotFileError(f"{file_name}: {problem}")


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
