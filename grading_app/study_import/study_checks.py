"""Checks of a study's values before they become rows, so that an error names the file and the row. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from evalsite.lib.text.characters import describe_unstorable
from grading_app.study_import.study import USAGE, StudyCondition, StudyError, StudyItem, StudyTrial
from grading_app.study_import.study_files import Study
from runs_app.bounds import BOUNDS
from runs_app.scorers.scorers import LARGEST_SCORE, is_valid_score

MAX_INTEGER = 2**31 - 1
MAX_SAMPLES = 10_000
MAX_ATTEMPTS = 1000  # Each is a row.
MAX_USD = Decimal(1_000_000)  # Of one trial.
MAX_TEXT = 2_000_000
LONGEST_KEY = 200
LONGEST_EFFORT = 20
CALL_TEXTS = ("error", "finish_reason", "response_id", "served_model")
TEXTS = ("answer", "raw_response", "reasoning")
ITEM_TEXTS = ("key", "input", "target", "category", "note", "choices", "metadata", "grading_scheme")


def check_design(study: Study) -> None:
    """Raise StudyError if the database could not store an item, a norm or a condition."""
    if not study.items:
        raise StudyError([f"{study.name}: the files have no trial"])
    check_items(study.items.values())
    fault = describe_unstorable(study.name)
    problems = [f"the name of the study {fault}"] if fault else []
    for judge in study.judges.values():
        fault = describe_unstorable([judge.name, judge.rubric_hash, judge.source_id])
        problems += [f"judge {judge.name[:80]!r}: it {fault}"] if fault else []
    judges = [judge.condition for judge in study.judges.values()]
    for condition in (*study.conditions.values(), *study.planned, *judges):
        names = [condition.model, condition.model_id, condition.provider, condition.prompt, condition.sampler]
        fault = describe_unstorable([*names, condition.run, list(condition.messages), dict(condition.settings)])
        problems += [f"condition {condition.key[:80]!r}: it {fault}"] if fault else []
        problems += [f"condition {condition.key[:80]!r}: {problem}" for problem in _find_setting_problems(condition)]
    if problems:
        raise StudyError(problems)


def check_items(items: Iterable[StudyItem]) -> None:
    """Raise StudyError if the database could not store an item or a norm."""
    if problems := [f"item {item.key[:80]!r}: {problem}" for item in items for problem in _find_item_problems(item)]:
        raise StudyError(problems)


def check_trial(trial: StudyTrial) -> None:
    """Raise StudyError if the database could not store a value of the trial."""
    problem = next(_find_trial_problems(trial), None)
    if problem:
        raise StudyError([f"{trial.where}: {problem}"])


def _find_item_problems(item: StudyItem) -> Iterator[str]:
    if not item.key or len(item.key) > LONGEST_KEY:
        yield f"its key must have 1 to {LONGEST_KEY} characters"
    if len(item.category) > LONGEST_KEY:
        yield f"its category is longer than {LONGEST_KEY} characters"
    for name in ITEM_TEXTS:
        yield from _find_text_problems(name.removeprefix("grading_"), getattr(item, name))
    for norm in item.norms:
        if not all(math.isfinite(value) for value in (norm.mean, norm.sd or 0)):
            yield f"the norm of {norm.dimension} is not a number"
        if (norm.sd or 0) < 0 or not 0 <= (norm.n or 0) <= MAX_INTEGER:
            yield f"the norm of {norm.dimension} has a negative sd or n"


def _find_setting_problems(condition: StudyCondition) -> Iterator[str]:
    for name, bound in BOUNDS["sampler"].items():
        value = condition.settings.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not bound.contains(value)
        ):
            yield f"{name} is {value!r}, not {bound}"
    effort = condition.settings.get("reasoning_effort", "")
    if not isinstance(effort, str) or len(effort) > LONGEST_EFFORT:
        yield f"reasoning_effort is {effort!r}"


def _find_trial_problems(trial: StudyTrial) -> Iterator[str]:
    if not 0 <= trial.sample_idx < MAX_SAMPLES:
        yield f"the repetition {trial.sample_idx} is not between 0 and {MAX_SAMPLES - 1:,}"
    if not 1 <= trial.attempts <= MAX_ATTEMPTS:
        yield f"attempts is {trial.attempts}, not between 1 and {MAX_ATTEMPTS:,}"
    if trial.rating is not None and abs(trial.rating) > MAX_INTEGER:
        yield f"rating is {trial.rating}"
    for call in (trial, *trial.calls, *trial.earlier_calls):
        for name in USAGE:
            value = getattr(call, name)
            if value is not None and not (type(value) is int and 0 <= value <= MAX_INTEGER):
                yield f"{name} is {value!r:.60}, not a whole number between 0 and {MAX_INTEGER:,}"
        for name in ("cost_usd", "list_usd"):
            usd = getattr(call, name)
            if usd is not None and not (usd.is_finite() and 0 <= usd <= MAX_USD):
                yield f"{name} is {usd}, not between 0 and {MAX_USD:,}"
        for name in CALL_TEXTS:
            yield from _find_text_problems(name, getattr(call, name))
    for name in TEXTS:
        yield from _find_text_problems(name, getattr(trial, name))
    for turn in trial.messages or ():
        yield from _find_text_problems("a message", turn["content"])
        yield from _find_text_problems("a message", turn)
    for score in trial.scores:
        if score.value is not None and not is_valid_score(score.value):
            yield f"the score {score.scorer} is {score.value}, not between -{LARGEST_SCORE:g} and {LARGEST_SCORE:g}"
        yield from _find_text_problems("the name of a score", score.scorer)
        yield from _find_text_problems(f"the score {score.scorer}", [score.raw, score.reasoning, score.detail])
        if score.verdict is not None:
            yield from (f"the verdict {score.scorer}: {problem}" for problem in _find_trial_problems(score.verdict))


def _find_text_problems(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        yield f"{name} is longer than {MAX_TEXT:,} characters"
    elif fault := describe_unstorable(value):
        yield f"{name} {fault}"
