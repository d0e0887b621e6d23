"""The answers to parametric tasks as ReasonScape's records: one JSON object per line, with all fields of its runner.

The messages are rendered again from the frozen prompt and item. Usage, timings and the reading of the answer are those
that were stored. Trials without an answer have no record, as there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min
from django.db.models.fields.json import KeyTextTransform

from datasets_app.models import Item
from evalsite.lib.sql import iterate_key_ranges
from grading_app.models import GradeCondition, Grading
from grading_app.publish.export.export_tables import TRIALS
from runs_app.engine.requests import build_question, build_run_design
from runs_app.models import Experiment, Run, Trial
from runs_app.scorers.scorers import SCORERS, ScoredAnswer, ScoredItem

RECORDS = "records"
SCORER = "final_answer"
VERSION = 1
PAGE = 500
DONE = f"{TRIALS.keys} AND t.status = 'done'"


@dataclass(frozen=True, slots=True)
class _Place:
    """A point in its dataset: its place from 0, and its number of cases."""

    step: int
    count: int


def record_chunks(experiment: Experiment) -> Iterator[bytes]:
    """Yield the records, a page of lines at a time. Only items with a point of a parametric task have records."""
    items = Item.objects.filter(dataset=experiment.dataset_id, metadata__has_key="point").order_by()
    points = items.values_list(KeyTextTransform("point", "metadata")).annotate(
        number=Count("pk"), first=Min("position")
    )
    places = {point: _Place(step, number) for step, (point, number, _) in enumerate(points.order_by("first"))}
    rule = experiment.grade_conditions.filter(kind=GradeCondition.Kind.RULE, scorer=SCORER).order_by("-pk").first()
    for run in experiment.answer_runs.with_design().order_by("pk"):
        for low, high in iterate_key_ranges(DONE, {"section": run.pk}, PAGE):
            design = build_run_design(run)
            page = Trial.objects.filter(run=run, status=Trial.Status.DONE, pk__gt=low, pk__lte=high)
            trials = page.select_related("item__image").order_by("pk")
            gradings = Grading.objects.filter(condition=rule, trial__in=page) if rule else Grading.objects.none()
            readings = dict(gradings.values_list("trial", "detail"))
            lines = []
            for trial in trials:
                if (place := places.get(trial.asked_item.metadata.get("point"))) is not None:
                    messages = design.build_messages(build_question(trial.asked_item, None), trial.sample_idx, None)
                    reading = readings.get(trial.pk) or _read_answer(trial)
                    record = _build_record(run, trial, place, messages, reading)
                    lines.append(json.dumps(record, ensure_ascii=False) + "\n")
            yield "".join(lines).encode()


def _read_answer(trial: Trial) -> dict[str, Any]:
    """Return the reading of an answer that no rule has graded yet."""
    item = ScoredItem(
        trial.asked_item.target, tuple(map(str, trial.asked_item.choices)), trial.asked_item.metadata.get("task", "")
    )
    answer = ScoredAnswer(trial.answer, truncated=trial.truncated, output_tokens=trial.output_tokens)
    return dict(SCORERS[SCORER].score(answer, item, {}).detail or {})


def _build_record(run: Run, trial: Trial, place: _Place, messages: Any, detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return one record. What an imported record had beyond our columns is given back as it was."""
    item, condition, origin = trial.asked_item, run.condition, detail.get("record") or {}
    facts = item.metadata
    name = origin.get("task") or f"{place.step:03}_{facts['point']}"
    tokens = (trial.input_tokens, trial.output_tokens)
    return {
        "task": name,
        "version": origin.get("version", VERSION),
        "base_task": facts.get("task", ""),
        "key": origin.get("key") or f"{name}-{facts.get('number', 0)}",
        "input": item.input,
        "target": item.target,
        "response_enum": list(item.choices),
        "genresult": facts.get("genresult", {}),
        "messages": [{"role": turn["role"], "content": turn["content"]} for turn in messages],
        "answer": trial.answer,
        "usage": {
            "completion_tokens": tokens[1],
            "prompt_tokens": tokens[0],
            "prompt_tokens_details": origin.get("prompt_tokens_details"),
            "total_tokens": None if None in tokens else sum(filter(None, tokens)),
        },
        "timings": {
            "termination_reason": origin.get("termination_reason"),
            "finish_reason": trial.finish_reason,
        },
        "step": origin.get("step", place.step),
        "params": {**facts.get("params", {}), "count": origin.get("count", place.count)},
        "model": condition.model.model,
        "template": origin.get("template") or (condition.prompt.name if condition.prompt else ""),
        "sampler": origin.get("sampler") or condition.sampler.name,
        "guess_chance": facts.get("guess_chance", 0.0),
        "normalized_answer": detail.get("normalised", ""),
        "extracted_answer": detail.get("extracted"),
        "is_valid": bool(detail.get("valid")),
        "is_correct": bool(detail.get("correct")),
        "is_truncated": bool(detail.get("truncated", trial.truncated)),
        **origin.get("others", {}),
    }
