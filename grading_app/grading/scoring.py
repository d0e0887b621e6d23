"""The grading of stored answers by rules: one grading per `done` trial and rule. Trials are read, never written.

A rule is a scorer with its parameters. Short statements process ranges of keys, so the work can stop anywhere and
resume. Two processes that grade at once write each grading only once. An answer that a scorer cannot read is also a
final result: a row with an error code.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import Sum

from evalsite.lib.history import Actor, record_changes
from evalsite.lib.sql import PAGE_ROWS, fetch_rows, iterate_key_ranges, open_raw_cursor
from grading_app.models import GradeCondition, Grading
from grading_app.models.gradings import allow_superseding
from runs_app.experiment_options import OnEmpty
from runs_app.models import Experiment, Run, Trial, Wave
from runs_app.models.trials import UNUSABLE
from runs_app.scorers.scorers import Score, ScoredAnswer, ScoredItem
from runs_app.scorers.scoring_rules import ScoringRule, read_rules

MAX_RAW_LENGTH = 2_000  # Characters of the parsed text to store; the full answer is in the trial.

GRADABLE = "t.status = 'done' AND (t.answer <> '' OR %(with_empty)s)"
GRADABLE_TRIALS = f"FROM runs_app_trial t WHERE t.run_id = %(run)s AND {GRADABLE}"
# OFFSET forces a lookup per answer. After many new gradings without an ANALYZE, the planner would otherwise choose a
# join that scans all gradings or compares each answer of a page with all of them.
UNGRADED = """ AND NOT EXISTS (SELECT FROM grading_app_grading g
    WHERE g.condition_id = %(condition)s AND g.trial_id = t.id OFFSET 0)"""
KEYS = f"SELECT t.id {GRADABLE_TRIALS}"
ANSWERS = f"""SELECT t.id, t.item_id, t.answer, t.rating, t.parse_error, t.truncated, t.output_tokens {GRADABLE_TRIALS}
    AND t.id > %(low)s AND t.id <= %(high)s"""
WRITE = """INSERT INTO grading_app_grading
    (condition_id, trial_id, score, score_raw, parse_ok, parse_error, detail, created_at)
    SELECT %(condition)s, trial_id, score, score_raw, parse_error = '', parse_error, detail::jsonb, now()
    FROM unnest(%(trials)s::bigint[], %(scores)s::float8[], %(raws)s::text[], %(errors)s::text[], %(details)s::text[])
        AS read (trial_id, score, score_raw, parse_error, detail)
    ON CONFLICT (condition_id, trial_id) """
KEEP_EXISTING = "DO NOTHING"
REPLACE_EXISTING = """DO UPDATE SET
    score = EXCLUDED.score, score_raw = EXCLUDED.score_raw, parse_ok = EXCLUDED.parse_ok,
    parse_error = EXCLUDED.parse_error, detail = EXCLUDED.detail, created_at = EXCLUDED.created_at"""


@dataclass(slots=True)
class RuleReport:
    """The result of one rule: newly graded trials and trials graded before.

    `unread` counts the new answers from which no score could be read, by error code. `is_complete` is False if the time
    ran out first.
    """

    scorer: str
    grade_condition_id: str
    label: str
    graded: int = 0
    graded_before: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True

    def __str__(self) -> str:
        codes = ", ".join(f"{count} {code}" for code, count in self.unread.most_common())
        return f"{self.label}: {self.graded} graded, {self.graded_before} graded before" + (
            f"; no score from {self.unread.total()} ({codes})" if codes else ""
        )


GradeReport = list[RuleReport]


def grade(
    experiment: Experiment,
    *,
    scorers: Sequence[str | Mapping[str, Any]] | None = None,
    wave: Wave | None = None,
    force: bool = False,
    seconds: float = math.inf,
    conditions: Collection[str] | None = None,
    by: Actor,
) -> GradeReport:
    """Grade the answers without a grading. With `force`, grade all answers again and replace their gradings.

    `scorers` replaces the scorers of the design. `wave` or `conditions` (by id) limit the answers.
    After `seconds` the work stops between two pages, and the report is not complete. The same call resumes it.
    Raise ScorerError for an unknown scorer.
    """
    end = time.monotonic() + seconds
    rules = experiment.list_rules() if scorers is None else read_rules(scorers)
    report = []
    for rule in rules:
        line = _RuleGrading(experiment, rule, wave, force, end, conditions).run()
        report.append(line)
        if line.graded:
            reason = "graded again, replacing earlier gradings" if force else ""
            record_changes([(experiment, "", str(line)[:200])], by=by, reason=reason, aspect="gradings")
    return report


def is_graded(experiment: Experiment) -> bool:
    """Return whether every rule of the design has graded every answer."""
    rules = experiment.list_rules()
    known = set(experiment.grade_conditions.values_list("grade_condition_id", flat=True))
    return all(
        rule.grade_condition_id in known
        and _RuleGrading(experiment, rule, None, False, math.inf)._count_if_complete() is not None
        for rule in rules
    )


@dataclass
class _RuleGrading:
    """One rule applied to one experiment. `condition` is the key of its grade condition."""

    experiment: Experiment
    rule: ScoringRule
    wave: Wave | None
    force: bool
    end: float
    conditions: Collection[str] | None = None

    def run(self) -> RuleReport:
        report = RuleReport(self.rule.scorer, self.rule.grade_condition_id, self.rule.label)
        if (graded := self._count_if_complete()) is not None:
            report.graded_before = graded
            return report
        for run in self._list_runs():
            count = f"SELECT count(*) FROM ({KEYS}) AS keys"  # noqa: S608
            n_done: int = fetch_rows(count, {"run": run, "with_empty": self.with_empty})[0][0]
            for page in self._iterate_pages(run):
                if time.monotonic() >= self.end:
                    report.is_complete = False
                    break
                scores = [
                    self.rule.score(
                        ScoredAnswer(answer, rating, parse_error or None, truncated, tokens), self._items[item]
                    )
                    for _, item, answer, rating, parse_error, truncated, tokens in page
                ]
                report.graded += self.write_gradings([trial for trial, *_ in page], scores)
                report.unread.update(score.parse_error for score in scores if score.parse_error)
            report.graded_before += n_done
        report.graded_before = max(0, report.graded_before - report.graded)
        return report

    def _count_if_complete(self) -> int | None:
        """Return the number of gradings if every answer has one, else None. This compares counts and reads no answers.

        Each grading belongs to another answer, and done trials stay done, so equal counts prove completeness.
        """
        if self.force or self.wave is not None or self.conditions is not None:
            return None
        runs = Run.objects.filter(pk__in=self._list_runs())
        expected = runs.aggregate(done=Sum("n_done", default=0))["done"]
        graded = Grading.objects.filter(condition=self.condition).count()
        if not self.with_empty:  # Blank answers may have gradings from before they were excluded.
            empty = Trial.objects.filter(UNUSABLE, run__in=self._list_runs(), answer="")
            expected, graded = (
                expected - empty.count(),
                graded - empty.filter(gradings__condition=self.condition).count(),
            )
        return graded if graded == expected else None

    @property
    def with_empty(self) -> bool:
        return self.experiment.on_empty != OnEmpty.SKIP

    def _list_runs(self) -> list[int]:
        runs = self.experiment.answer_runs
        if self.conditions is not None:
            runs = runs.filter(condition__condition_id__in=self.conditions)
        return list((runs.filter(wave=self.wave) if self.wave else runs).order_by("pk").values_list("pk", flat=True))

    @cached_property
    def condition(self) -> int:
        condition, _ = GradeCondition.objects.get_or_create(
            experiment=self.experiment,
            grade_condition_id=self.rule.grade_condition_id,
            defaults={"scorer": self.rule.scorer, "parameters": dict(self.rule.parameters)},
        )
        return condition.pk

    @cached_property
    def _items(self) -> dict[int, ScoredItem]:
        rows = self.experiment.dataset.items.values_list("pk", "target", "choices", "metadata__task").iterator()
        return {pk: _build_scored_item(*fields) for pk, *fields in rows}

    def _iterate_pages(self, run: int) -> Iterator[list[tuple[Any, ...]]]:
        parameters = {"run": run, "condition": self.condition, "with_empty": self.with_empty}
        ungraded = "" if self.force else UNGRADED
        for low, high in iterate_key_ranges(KEYS + ungraded, parameters, PAGE_ROWS):
            yield fetch_rows(ANSWERS + ungraded, {**parameters, "low": low, "high": high})

    def write_gradings(self, trials: list[int], scores: list[Score]) -> int:
        columns: dict[str, Any] = {
            "condition": self.condition,
            "trials": trials,
            "scores": [score.value for score in scores],
            "raws": [(score.raw or "")[:MAX_RAW_LENGTH] for score in scores],
            "errors": [score.parse_error or "" for score in scores],
            "details": [_dump_detail(score.detail) for score in scores],
        }
        with allow_superseding() if self.force else nullcontext(), open_raw_cursor() as cursor:
            cursor.execute(WRITE + (REPLACE_EXISTING if self.force else KEEP_EXISTING), columns)
            return int(cursor.rowcount)


UNGRADED_TRIALS = f"""SELECT t.id, t.answer, t.rating, t.parse_error, t.truncated, t.output_tokens,
    i.target, i.choices::text, i.metadata ->> 'task' FROM runs_app_trial t
    JOIN datasets_app_item i ON i.id = t.item_id WHERE t.id = ANY(%(trials)s) AND {GRADABLE}{UNGRADED}"""  # noqa: S608


def grade_trials(experiment: Experiment, rule: ScoringRule, trials: Sequence[int]) -> int:
    """Grade these trials if they have no grading by this rule. Return the key of the rule's grade condition.

    Blank answers are skipped if the experiment excludes them from grading.
    """
    grading = _RuleGrading(experiment, rule, None, False, math.inf)
    parameters = {"trials": list(trials), "condition": grading.condition, "with_empty": grading.with_empty}
    rows = fetch_rows(UNGRADED_TRIALS, parameters)
    scores = [
        rule.score(
            ScoredAnswer(answer, rating, error or None, truncated, tokens),
            _build_scored_item(target, json.loads(choices), task),
        )
        for _, answer, rating, error, truncated, tokens, target, choices, task in rows
    ]
    grading.write_gradings([trial for trial, *_ in rows], scores)
    return grading.condition


def _build_scored_item(target: str, choices: Sequence[Any], task: Any) -> ScoredItem:
    return ScoredItem(target, tuple(map(str, choices)), task if isinstance(task, str) else "")


def _dump_detail(detail: Mapping[str, Any] | None) -> str | None:
    """Return JSON for a jsonb column. Texts are truncated, because an answer may have any length."""
    if detail is None:
        return None
    truncated = {name: value[:MAX_RAW_LENGTH] if isinstance(value, str) else value for name, value in detail.items()}
    return json.dumps(truncated)
