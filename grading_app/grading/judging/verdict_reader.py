"""The conversion of judges' new replies to gradings and preferences, in set-based statements.

The newest reply on an answer counts, so a repeated verdict replaces the previous one.
Short statements process key ranges, so the work can stop and resume. Concurrent readers write the same rows.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from django.db.models import Q

from evalsite.lib.sql import PAGE_ROWS, fetch_rows, iterate_key_ranges, open_raw_cursor
from grading_app.grading.judging import panels
from grading_app.grading.judging.verdicts import KEYS, Verdict, read_verdict
from grading_app.models import GradeCondition, Rubric
from grading_app.models.gradings import allow_superseding, count_verdicts
from runs_app.models import Experiment, Run

DONE_REPLIES = "FROM runs_app_trial v WHERE v.run_id = %(run)s AND v.status = 'done'"
# Checked per reply, as rules check answers (`grading.UNGRADED`).
UNREAD = f"""{DONE_REPLIES} AND NOT EXISTS (SELECT FROM grading_app_grading g
    WHERE g.condition_id = %(condition)s AND g.trial_id = v.subject_id AND g.judged_by_id >= v.id OFFSET 0)"""
UNREAD_PAIRS = f"""{DONE_REPLIES} AND NOT EXISTS (SELECT FROM grading_app_preference p
    WHERE p.condition_id = %(condition)s AND p.trial_a_id = v.subject_id AND p.trial_b_id = v.rival_id
    AND p.judged_by_id >= v.id OFFSET 0)"""
# A page has thousands of rows. It reads the judged answers only if a judge could quote a verdict in them.
REPLIES = """SELECT v.id, v.subject_id, v.rival_id, v.answer, a.truncated, a.refused, v.truncated,
    CASE WHEN a.answer ~* %(quotable)s THEN a.answer ELSE '' END,
    CASE WHEN b.answer ~* %(quotable)s THEN b.answer ELSE '' END {unread}
    AND v.id > %(low)s AND v.id <= %(high)s ORDER BY v.id"""
WITH_SUBJECT = (
    "FROM runs_app_trial v JOIN runs_app_trial a ON a.id = v.subject_id LEFT JOIN runs_app_trial b ON b.id = v.rival_id"
)

# The newer reply wins, both within a page and between two concurrent readers.
WRITE = """INSERT INTO grading_app_grading AS existing
    (condition_id, trial_id, judged_by_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
SELECT DISTINCT ON (subject) %(condition)s, subject, judged_by, score, raw, error = '', error, reasoning, detail, now()
FROM json_to_recordset(%(rows)s) AS read (judged_by bigint, subject bigint, score float8, raw text, error text,
    reasoning text, detail jsonb)
ORDER BY subject, judged_by DESC
ON CONFLICT (condition_id, trial_id) DO UPDATE SET judged_by_id = excluded.judged_by_id, score = excluded.score,
    score_raw = excluded.score_raw, parse_ok = excluded.parse_ok, parse_error = excluded.parse_error,
    reasoning = excluded.reasoning, detail = excluded.detail, created_at = excluded.created_at
WHERE existing.judged_by_id IS NULL OR existing.judged_by_id <= excluded.judged_by_id"""
WRITE_PAIRS = """INSERT INTO grading_app_preference AS existing
    (condition_id, judged_by_id, trial_a_id, trial_b_id, winner, parse_error, reasoning, created_at)
SELECT DISTINCT ON (subject, rival) %(condition)s, judged_by, subject, rival, winner, error, reasoning, now()
FROM json_to_recordset(%(rows)s) AS read (judged_by bigint, subject bigint, rival bigint, winner text, error text,
    reasoning text)
ORDER BY subject, rival, judged_by DESC
ON CONFLICT (condition_id, trial_a_id, trial_b_id) DO UPDATE SET judged_by_id = excluded.judged_by_id,
    winner = excluded.winner, parse_error = excluded.parse_error, reasoning = excluded.reasoning,
    created_at = excluded.created_at
WHERE existing.judged_by_id <= excluded.judged_by_id"""


@dataclass(slots=True)
class VerdictReport:
    """The newly stored verdicts of one grade condition, and the error codes of unreadable verdicts."""

    condition: GradeCondition
    read: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True

    def __str__(self) -> str:
        codes = ", ".join(f"{count} {code}" for code, count in self.unread.most_common())
        return f"{self.condition}: {self.read} verdicts read" + (
            f"; no verdict in {self.unread.total()} ({codes})" if codes else ""
        )


def read_verdicts(experiment: Experiment, *, again: bool = False, seconds: float = math.inf) -> list[VerdictReport]:
    """Convert the judges' replies to gradings, and refresh the panels.

    `again` also converts replies that were converted before. After `seconds` the function stops between two pages,
    and the report is not complete.
    """
    end = time.monotonic() + seconds
    judges = experiment.grade_conditions.filter(kind=GradeCondition.Kind.JUDGE, rubric__isnull=False)
    conditions = judges.select_related("rubric", "judge_condition").order_by("pk")
    report = [_JudgeReplies(condition, again, end).run() for condition in conditions]
    if any(line.read for line in report):
        panels.refresh_all_panels(experiment)
    return report


@dataclass
class _JudgeReplies:
    """The replies of one judge."""

    condition: GradeCondition
    again: bool
    end: float

    @property
    def _in_pairs(self) -> bool:
        return self.condition.rubric is not None and self.condition.rubric.kind == Rubric.Kind.PAIRWISE

    @property
    def _rubric(self) -> Mapping[str, Any]:
        content: Mapping[str, Any] = self.condition.judge_condition.content if self.condition.judge_condition else {}
        return content["rubric"]  # type: ignore[no-any-return]

    @property
    def _unread(self) -> str:
        if self.again:
            return DONE_REPLIES
        return UNREAD_PAIRS if self._in_pairs else UNREAD

    def run(self) -> VerdictReport:
        report = VerdictReport(self.condition)
        for run in Run.objects.filter(condition=self.condition.judge_condition, n_done__gt=0).order_by("pk"):
            for page in self._iterate_pages(run.pk):
                if time.monotonic() >= self.end:
                    report.is_complete = False
                    return report
                verdicts = [
                    read_verdict(answer, self._rubric, judged, is_truncated=is_truncated)
                    for _, _, _, answer, _, _, is_truncated, *judged in page
                ]
                rows = [_build_row(reply, verdict) for reply, verdict in zip(page, verdicts, strict=True)]
                with allow_superseding(), open_raw_cursor() as cursor:
                    statement = WRITE_PAIRS if self._in_pairs else WRITE
                    cursor.execute(statement, {"condition": self.condition.pk, "rows": json.dumps(rows)})
                    report.read += int(cursor.rowcount)
                report.unread.update(verdict.error for verdict in verdicts if verdict.error)
        return report

    def _iterate_pages(self, run: int) -> Iterator[list[tuple[Any, ...]]]:
        parameters = {"run": run, "condition": self.condition.pk}
        quotable = rf'"{KEYS[self._rubric["kind"]]}"|\\u00[4-7]'  # JSON may write letters of a key as escapes.
        # Each page reads its replies when it is processed, so that only one page is in memory.
        replies = REPLIES.format(unread=self._unread.replace("FROM runs_app_trial v", WITH_SUBJECT, 1))
        for low, high in iterate_key_ranges(f"SELECT v.id {self._unread}", parameters, PAGE_ROWS):
            yield fetch_rows(replies, {**parameters, "low": low, "high": high, "quotable": quotable})


def _build_row(reply: tuple[Any, ...], verdict: Verdict) -> Mapping[str, Any]:
    trial, subject, rival, _, truncated, refused, *_ = reply
    flags = [name for name, applies in (("truncated", truncated), ("refused", refused)) if applies]
    detail = {**(verdict.detail or {}), **({"flags": flags} if flags else {})}
    return {
        "judged_by": trial,
        "subject": subject,
        "rival": rival,
        "score": verdict.score,
        "winner": verdict.winner,
        "raw": verdict.raw,
        "error": verdict.error,
        "reasoning": verdict.reasoning,
        "detail": detail or None,
    }


def read_database_time() -> datetime:
    """Return the time by the clock that dates verdicts."""
    return cast(datetime, fetch_rows("SELECT now()")[0][0])


def count_stored_verdicts(conditions: Iterable[GradeCondition], since: datetime) -> list[VerdictReport]:
    """Return the verdicts stored since this time of the database, by this process or by a worker of the queue."""
    report = []
    for condition in conditions:
        by_call = Q(condition=condition, judged_by__isnull=False, created_at__gte=since)
        counts = dict(count_verdicts(by_call, "parse_error"))
        unread = Counter({code: n for code, n in counts.items() if code})
        report.append(VerdictReport(condition, sum(counts.values()), unread))
    return report


def count_unread_verdicts(experiment: Experiment) -> dict[tuple[int, int], dict[str, int]]:
    """Return the number of unreadable verdicts per code, for each judge condition and wave."""
    judges = experiment.grade_conditions.filter(kind=GradeCondition.Kind.JUDGE)
    unread = Q(condition__in=list(judges), judged_by__isnull=False) & ~Q(parse_error="")
    counts: dict[tuple[int, int], dict[str, int]] = {}
    for condition, wave, code, n in count_verdicts(
        unread, "judged_by__run__condition", "judged_by__run__wave", "parse_error"
    ):
        counts.setdefault((condition, wave), {})[code] = n
    return counts
