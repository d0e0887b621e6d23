"""The checks of imported definitions, and the completion of a study from all its rows: counters and money.

A counter in a file is a claim. All counters of an imported study are computed from its rows, by the rules of
`grading_app/grading/consistency_check.py`. So are the reservations of the calls that this site may still make for it:
verdicts, and texts about items.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.models import Max

from datasets_app.models import Dataset
from evalsite.lib.sql import OctetLength
from evalsite.lib.text.hashing import hash_content
from grading_app.grading.adaptive_decisions import recount_points_of
from grading_app.grading.consistency_check import POINT_COUNTERS
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

COUNT_TRIALS = """
UPDATE runs_app_run r SET (n_pending, n_running, n_done, n_failed, n_cancelled) = (
    SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'running'),
        count(*) FILTER (WHERE status = 'done'), count(*) FILTER (WHERE status = 'failed'),
        count(*) FILTER (WHERE status = 'cancelled')
    FROM runs_app_trial t WHERE t.run_id = r.id)
WHERE r.experiment_id = %(experiment)s
"""
COUNT_CALLS = """
UPDATE runs_app_run r SET (n_attempts, n_permanent, n_unpriced, spent_usd, input_tokens, output_tokens, errors) = (
    SELECT count(*), count(*) FILTER (WHERE outcome = 'permanent'), count(*) FILTER (WHERE cost_usd IS NULL),
        coalesce(sum(cost_usd), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
        (SELECT coalesce(jsonb_object_agg(error_class, n), '{}') FROM (
            SELECT error_class, count(*) AS n FROM runs_app_attempt WHERE run_id = r.id AND error_class <> ''
            GROUP BY 1) AS by_class)
    FROM runs_app_attempt a WHERE a.run_id = r.id),
    attempts_before = least(attempts_before, (SELECT count(*) FROM runs_app_attempt a WHERE a.run_id = r.id)),
    permanent_before = least(permanent_before, (
        SELECT count(*) FROM runs_app_attempt a WHERE a.run_id = r.id AND a.outcome = 'permanent'))
WHERE r.experiment_id = %(experiment)s
"""
ADD_UP_MONEY = """
UPDATE runs_app_experiment SET (spent_usd, reserved_usd) = (
    SELECT coalesce(sum(spent), 0), coalesce(sum(kept), 0) FROM (
        SELECT a.cost_usd, a.kept_usd FROM runs_app_attempt a JOIN runs_app_run r ON r.id = a.run_id
        WHERE r.experiment_id = %(experiment)s
        UNION ALL SELECT cost_usd, kept_usd FROM runs_app_preflight WHERE experiment_id = %(experiment)s
        UNION ALL SELECT spent_usd, kept_usd FROM runs_app_deletedrun WHERE experiment_id = %(experiment)s
    ) AS money (spent, kept)) WHERE id = %(experiment)s
"""
# Case k is repetition k / n_items of item k mod n_items. Trials of a pilot beyond these cases do not count.
FIND_MISCOUNTED = """
SELECT p.id, p.n_planned, count(t.id) FROM runs_app_point p JOIN runs_app_run r ON r.id = p.run_id
CROSS JOIN LATERAL unnest(p.items) WITH ORDINALITY AS drawn (item, place)
LEFT JOIN runs_app_trial t ON t.run_id = p.run_id AND t.item_id = drawn.item
    AND t.dimension_id IS NOT DISTINCT FROM p.dimension_id
    AND t.sample_idx::bigint * p.n_items + drawn.place <= p.n_planned
WHERE r.experiment_id = %(experiment)s
GROUP BY p.id HAVING p.n_planned <> count(t.id) OR p.n_items <> cardinality(p.items)
"""


def count_rows(experiment: Experiment) -> None:
    """Set the counters of an experiment without running trials, and what it spent, to what its rows say."""
    with connection.cursor() as cursor:
        for statement in (COUNT_TRIALS, COUNT_CALLS, ADD_UP_MONEY):
            cursor.execute(statement, {"experiment": experiment.pk})


def complete_study(experiment: Experiment) -> None:
    """Set the counters of an imported study, and the reservations of its runs.

    Raise SnapshotFileError for a file with live runs, because a worker would claim their trials, and for points whose
    counts led to another decision than their trials.
    """
    count_rows(experiment)
    runs = Run.objects.filter(experiment=experiment)
    live = runs.filter(status__in=Run.UNDER_WAY) | runs.filter(n_running__gt=0)
    if live.exists() or Trial.objects.filter(run__in=runs, status=Trial.Status.RUNNING).exists():
        raise SnapshotFileError("the file holds live runs, which no snapshot has")
    # The counts of each point must be those of its trials and grades.
    with connection.cursor() as cursor:
        cursor.execute(FIND_MISCOUNTED, {"experiment": experiment.pk})
        if miscounted := cursor.fetchone():
            key, planned, counted = miscounted
            raise SnapshotFileError(
                f"{_name_point(key)}: n_planned is {planned}, and {counted} of its cases have trials"
            )
    for key, *pairs in recount_points_of(experiment):
        for counter, stored, counted in zip(POINT_COUNTERS, pairs[::2], pairs[1::2], strict=True):
            is_close = isinstance(stored, float) and isinstance(counted, float) and math.isclose(stored, counted)
            if stored != counted and not is_close:
                raise SnapshotFileError(f"{_name_point(key)}: {counter} is {stored}, and its rows say {counted}")
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
