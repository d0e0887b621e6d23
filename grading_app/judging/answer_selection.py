"""The selection of stored answers that a grader judges in one wave, and their counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db import connection

from evalsite.lib.sql import open_raw_cursor
from grading_app.judging import grade_conditions
from grading_app.models import Grader, Rubric
from runs_app.experiment_options import OnEmpty
from runs_app.models import Experiment, Run, Wave
from runs_app.models.trials import BLANK

TOO_LONG = "char_length({t}.answer) > %(longest)s"
JUDGED = f"(%(judges_empty)s OR NOT {BLANK}) AND (%(longest)s::int IS NULL OR NOT {TOO_LONG})"

# A pending or running verdict is never requested twice, not even with `force`. A cancelled verdict counts as not
# requested.
REQUESTED = """EXISTS (SELECT FROM runs_app_trial v
    WHERE v.run_id = %(run)s AND v.subject_id = a.id AND v.rival_id IS NOT DISTINCT FROM {rival}
    AND v.status <> 'cancelled' AND (NOT %(force)s OR v.status IN ('pending', 'running')))"""

SINGLE_ANSWERS = f"""FROM runs_app_trial a
WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done' AND {JUDGED.format(t="a")}"""

# Both orders: each pair occurs twice.
ANSWER_PAIRS = f"""FROM runs_app_trial a JOIN runs_app_trial b ON b.item_id = a.item_id AND b.sample_idx = a.sample_idx
    AND b.dimension_id IS NOT DISTINCT FROM a.dimension_id AND b.run_id <> a.run_id
WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done' AND {JUDGED.format(t="a")}
AND b.run_id = ANY(%(runs)s) AND b.status = 'done' AND {JUDGED.format(t="b")}"""

INSERT = """INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, subject_id, rival_id)
SELECT %(run)s, %(sample_idx)s, a.item_id, a.dimension_id, a.id, {rival} {answers} AND NOT {requested}
ORDER BY a.sample_idx, a.item_id, a.dimension_id, a.id"""
COUNT_VERDICTS = "SELECT count(*), count(*) FILTER (WHERE NOT {requested}) {answers}"
COUNT_ANSWERS = f"""SELECT count(*), count(*) FILTER (WHERE {BLANK.format(t="a")}),
    count(*) FILTER (WHERE %(longest)s::int IS NOT NULL AND {TOO_LONG.format(t="a")}),
    count(*) FILTER (WHERE a.truncated), count(*) FILTER (WHERE a.refused), coalesce(max(octet_length(a.answer)), 0)
FROM runs_app_trial a WHERE a.run_id = ANY(%(runs)s) AND a.status = 'done'"""  # noqa: S608 - constants only
NEXT_SAMPLE = "SELECT coalesce(max(sample_idx) + 1, 0) FROM runs_app_trial WHERE run_id = %(run)s"

# These answers get the lowest score without a call, with a code for the reason.
SCORE_WITHOUT_CALL = f"""INSERT INTO grading_app_grading
    (condition_id, trial_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
SELECT %(condition)s, a.id, %(lowest)s, '', true, '', '', jsonb_build_object('code', code), now()
FROM (SELECT id, CASE WHEN {BLANK.format(t="t")} THEN 'empty_answer' ELSE 'answer_too_long' END AS code
    FROM runs_app_trial t WHERE t.run_id = ANY(%(runs)s) AND t.status = 'done'
    AND ((%(zeroes_empty)s AND {BLANK.format(t="t")}) OR (%(longest)s::int IS NOT NULL AND {TOO_LONG.format(t="t")}))) a
ON CONFLICT (condition_id, trial_id) DO NOTHING"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Counts of done answers by property. `longest` is in bytes."""

    answers: int
    empty: int
    too_long: int
    truncated: int
    refused: int
    longest: int


@dataclass
class AnswerSelection:
    """The done answers of one wave of an experiment, selected for one grader."""

    experiment: Experiment
    grader: Grader
    wave: Wave
    force: bool = False
    conditions: Collection[str] | None = None  # Condition ids. None means all conditions.

    @cached_property
    def condition(self) -> Any:
        return grade_conditions.find_condition(self.experiment, self.grader)

    @property
    def in_pairs(self) -> bool:
        return self.grader.rubric.kind == Rubric.Kind.PAIRWISE

    def find_run(self) -> Run | None:
        """Return the judge's run in this wave, or None if it does not exist yet."""
        if self.condition is None or self.wave.pk is None:
            return None
        return Run.objects.filter(condition=self.condition.judge_condition, wave=self.wave).first()

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        runs = self.experiment.answer_runs.filter(wave=self.wave)
        if self.conditions is not None:
            runs = runs.filter(condition__condition_id__in=self.conditions)
        grades_empty = self.experiment.on_empty != OnEmpty.SKIP  # With SKIP, rules skip empty answers too.
        return {
            "runs": list(runs.values_list("pk", flat=True)),
            "longest": self.grader.longest_answer,
            "judges_empty": grades_empty and self.grader.on_empty == Grader.OnEmpty.GRADE,
            "zeroes_empty": grades_empty and self.grader.on_empty == Grader.OnEmpty.ZERO,
            "force": self.force,
        }

    @cached_property
    def counts(self) -> AnswerCounts:
        """Return the counts of the answers. `longest` covers the whole wave.

        One run holds all verdicts of the wave, and its reservation must cover each of them.
        """
        counts = AnswerCounts(*self._fetch_row(COUNT_ANSWERS, {}))
        if self.conditions is None:
            return counts
        return replace(counts, longest=replace(self, conditions=None).counts.longest)

    def count_verdicts(self) -> tuple[int, int]:
        """Return the number of verdicts that the answers need, and the number not requested yet."""
        run = self.find_run()
        needed, new = self._fetch_row(self._build_sql(COUNT_VERDICTS), {"run": run.pk if run else None})
        return needed, new

    def insert_trials(self, run: Run) -> int:
        """Insert the judge's missing trials into its run, and return their number. The run must be locked."""
        sample_idx = self._fetch_row(NEXT_SAMPLE, {"run": run.pk})[0] if self.force else 0
        return self._execute(self._build_sql(INSERT), {"run": run.pk, "sample_idx": sample_idx})

    def score_without_call(self, condition_id: int) -> int:
        """Insert gradings with the lowest score for answers that need no call, and return their number.

        Return 0 for pairwise rubrics.
        """
        if self.in_pairs:
            return 0
        return self._execute(SCORE_WITHOUT_CALL, {"condition": condition_id, "lowest": self.grader.rubric.lowest_score})

    def _build_sql(self, template: str) -> str:
        rival = "b.id" if self.in_pairs else "NULL"
        answers = ANSWER_PAIRS if self.in_pairs else SINGLE_ANSWERS
        return template.format(answers=answers, requested=REQUESTED.format(rival=rival), rival=rival)

    def _execute(self, statement: str, parameters: dict[str, Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, self._parameters | parameters)
            return int(cursor.rowcount)

    def _fetch_row(self, statement: str, parameters: dict[str, Any]) -> Any:
        with open_raw_cursor() as cursor:
            cursor.execute(statement, self._parameters | parameters)
            return cursor.fetchone()
