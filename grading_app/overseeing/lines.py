"""One line for each way in which an experiment's answers are graded: progress, mean, failures by code, cost, flags."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.models import Max
from django.utils import timezone

from datasets_app.models import StatusChange
from evalsite.lib.hashing import content_hash
from grading_app.analysis.clusters import ClusterSums, clustered_mean_of
from grading_app.analysis.frames import SUMS
from grading_app.analysis.statistics import Mean
from grading_app.comparing.raters import grade_label
from grading_app.judging.conditions import kin_among, solvers_of
from grading_app.models import GradeCondition, Grading, Rubric
from runs_app.models import Experiment, Run
from runs_app.progress import UNDER_WAY, Totals

LIVE_SECONDS = 3  # While verdicts come in, sums over all of them are kept so long ...
LIVE_SHARE = 20  # ... or for so many times as long as they took.
SETTLED_AFTER_S = 600  # After its last call, a judge's replies have been read.
KEPT_SECONDS = 24 * 3600
LENGTH_MATTERS = 0.3  # Correlation of score and length, either way, from which it is worth a look ...
ENOUGH = 30  # ... and the answers that it needs to rest on.

BY_ITEM = f"""SELECT rule, {SUMS} FROM (
    SELECT g.condition_id AS rule, t.item_id, count(*) AS asked, count(g.score) AS n,
        coalesce(sum(g.score), 0) AS s, coalesce(sum(g.score * g.score), 0) AS q
    FROM grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id
    WHERE g.condition_id = ANY(%(conditions)s) GROUP BY 1, 2) AS of_item GROUP BY 1"""  # noqa: S608 - fixed text
BY_CODE = """SELECT g.condition_id, g.parse_error, count(*) FROM grading_app_grading g
    WHERE g.condition_id = ANY(%(conditions)s) AND g.parse_error <> '' GROUP BY 1, 2 ORDER BY 3 DESC, 2"""
BY_LENGTH = """SELECT g.condition_id, corr(g.score, char_length(t.answer)), count(g.score)
    FROM grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id
    WHERE g.condition_id = ANY(%(conditions)s) GROUP BY 1"""
PAIRS_BY_CODE = """SELECT condition_id, parse_error, count(*) FROM grading_app_preference
    WHERE condition_id = ANY(%(conditions)s) AND parse_error <> '' GROUP BY 1, 2 ORDER BY 3 DESC, 2"""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a condition's gradings add up to. `mean` is None where no score could be read.

    codes: (code, how many) of those that could not, the most frequent first. length: Pearson's r of score and length of
    the answer in characters, over `length_n` answers; None where either does not vary.
    """

    mean: Mean | None = None
    codes: tuple[tuple[str, int], ...] = ()
    length: float | None = None
    length_n: int = 0

    @property
    def unread(self) -> int:
        return sum(n for _, n in self.codes)

    @property
    def follows_length(self) -> bool:
        return self.length is not None and self.length_n >= ENOUGH and abs(self.length) >= LENGTH_MATTERS


@dataclass(frozen=True, slots=True)
class GradeLine:
    """A grade condition with its runs (none for a rule or a panel) and what came of them. kin: names of the models that
    are of the judge's own family."""

    condition: GradeCondition
    runs: tuple[Run, ...]
    scores: Scores
    kin: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return grade_label(self.condition)

    @property
    def totals(self) -> Totals:
        return Totals.of(self.runs)

    @property
    def spent(self) -> Decimal:
        return sum((run.spent_usd for run in self.runs), Decimal(0))

    @property
    def unpriced(self) -> int:
        return sum(run.n_unpriced for run in self.runs)

    @property
    def errors(self) -> list[tuple[str, int]]:
        """Calls that failed, by error class, the most frequent first."""
        added: dict[str, int] = {}
        for run in self.runs:
            for name, n in run.errors.items():
                added[name] = added.get(name, 0) + n
        return sorted(added.items(), key=lambda pair: (-pair[1], pair[0]))

    @property
    def in_pairs(self) -> bool:
        return bool(self.condition.rubric and self.condition.rubric.kind == Rubric.Kind.PAIRWISE)

    @property
    def stop_reasons(self) -> list[str]:
        return [run.stop_reason for run in self.runs if run.stop_reason]


def grade_lines(experiment: Experiment) -> list[GradeLine]:
    """In the order in which they were made; a constant number of queries."""
    conditions = list(
        experiment.grade_conditions.select_related(
            "grader__language_model__endpoint", "rubric", "panel", "judge_condition"
        ).order_by("pk")
    )
    runs = _runs_of(experiment)
    kin = _kin_of(experiment, conditions)
    settled = not is_moving((run for of_one in runs.values() for run in of_one), SETTLED_AFTER_S)
    scores = scores_of(experiment, [condition.pk for condition in conditions], settled=settled)
    return [
        GradeLine(
            condition,
            tuple(runs.get(condition.judge_condition_id, ())),
            scores.get(condition.pk, Scores()),
            kin.get(condition.pk, ()),
        )
        for condition in conditions
    ]


def tries_of(experiment: Experiment) -> list[Run]:
    """Runs of judges that only tried a rubric: their verdicts are no gradings. The newest first."""
    runs = Run.objects.filter(experiment=experiment, condition__stage="judge", condition__grade_condition=None)
    return list(runs.with_design().order_by("-pk")[:20])


def _runs_of(experiment: Experiment) -> dict[int | None, list[Run]]:
    found: dict[int | None, list[Run]] = {}
    judging = Run.objects.filter(experiment=experiment, condition__stage="judge")
    for run in judging.with_design().order_by("wave__number", "pk"):
        found.setdefault(run.condition_id, []).append(run)
    return found


def _kin_of(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, tuple[str, ...]]:
    """By condition, the solvers of a judge's family; of a panel, those of any of its members' families."""
    solvers = solvers_of(experiment)
    found = {
        condition.pk: tuple(model.name for model in kin_among(solvers, condition.grader))
        for condition in conditions
        if condition.grader is not None
    }
    for condition in conditions:
        if condition.kind == GradeCondition.Kind.PANEL:
            names = [name for member in condition.parameters["members"] for name in found.get(member, ())]
            found[condition.pk] = tuple(sorted(set(names)))
    return found


def is_moving(runs: Iterable[Run], for_s: float) -> bool:
    """Whether a judge is at work or ended so recently that its last replies may not be read yet."""
    since = timezone.now() - timedelta(seconds=for_s)
    return any(run.status in UNDER_WAY or (run.finished_at and run.finished_at > since) for run in runs)


def scores_of(experiment: Experiment, conditions: Sequence[int], *, settled: bool) -> dict[int, Scores]:
    """By condition. Kept until counters have moved; for some seconds only, unless nothing can come any more."""
    key = f"scores:{_state_of(experiment, conditions)}"
    found: dict[int, Scores] | None = cache.get(key)
    if found is None:
        started = time.monotonic()
        found = _read(conditions)
        live = max(LIVE_SECONDS, LIVE_SHARE * (time.monotonic() - started))
        cache.set(key, found, KEPT_SECONDS if settled else live)
    return found


def _state_of(experiment: Experiment, conditions: Sequence[int]) -> str:
    """Another text once calls have ended, rules have graded, or a grading is new anywhere. Never walks gradings."""
    counters = experiment.runs.order_by("pk").values_list("pk", "n_done", "n_failed")
    graded = StatusChange.objects.of(experiment).filter(what="gradings").aggregate(last=Max("pk"))
    newest = Grading.objects.aggregate(last=Max("pk"))
    return content_hash([experiment.pk, list(counters), list(conditions), graded["last"], newest["last"]])


def _read(conditions: Sequence[int]) -> dict[int, Scores]:
    wanted = {"conditions": list(conditions)}
    means = {rule: _mean(sums) for rule, *sums in _rows(BY_ITEM, wanted)}
    lengths = {rule: (r, n) for rule, r, n in _rows(BY_LENGTH, wanted)}
    codes: dict[int, list[tuple[str, int]]] = {}
    for rule, code, n in [*_rows(BY_CODE, wanted), *_rows(PAIRS_BY_CODE, wanted)]:
        codes.setdefault(rule, []).append((code, n))
    return {
        rule: Scores(means.get(rule), tuple(codes.get(rule, ())), *lengths.get(rule, (None, 0))) for rule in conditions
    }


def _mean(sums: Sequence[Any]) -> Mean | None:
    clusters, total, n, squares, totals_squared, sizes_by_totals, sizes_squared, _unread = sums
    return clustered_mean_of(ClusterSums(n, total, squares, clusters, totals_squared, sizes_by_totals, sizes_squared))


def _rows(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
