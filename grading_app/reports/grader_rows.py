"""The rows of the grading page: for each grade condition its progress, mean, failures by code, cost and flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from grading_app.judging.grade_conditions import find_same_family, list_solvers
from grading_app.models import GradeCondition, Rubric
from grading_app.reports.cached_aggregates import Cached
from grading_app.reports.pairwise_stats import PAIRS, PairwiseStanding
from grading_app.reports.verdict_aggregates import get_by_condition
from grading_app.reports.verdict_stats import SCORES, VerdictScores, list_panel_members
from runs_app.models import Experiment, Run
from runs_app.monitoring.progress import Totals


@dataclass(frozen=True, slots=True)
class GraderRow:
    """A grade condition with its runs (none for a rule or a panel) and their results.

    related_models: names of the answering models that belong to the judge's own family. missing: for a panel, (name of
    a member, number of answers without its verdict).
    """

    condition: GradeCondition
    runs: tuple[Run, ...]
    cached: Cached[VerdictScores]
    related_models: tuple[str, ...] = ()
    missing: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        return self.condition.label

    @property
    def scores(self) -> VerdictScores:
        """The scores; empty scores while nothing was added up."""
        return self.cached.value or VerdictScores()

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
        """Failed calls by error class, the most frequent first."""
        added: dict[str, int] = {}
        for run in self.runs:
            for name, n in run.errors.items():
                added[name] = added.get(name, 0) + n
        return sorted(added.items(), key=lambda pair: (-pair[1], pair[0]))

    @property
    def in_pairs(self) -> bool:
        return bool(self.condition.rubric and self.condition.rubric.kind == Rubric.Kind.PAIRWISE)

    @property
    def verdicts(self) -> int:
        """The number of pairwise verdicts, read or unread. Only the newest verdict of a pair in each order counts."""
        return self.scores.preferred + self.scores.unread

    @property
    def is_adjudication(self) -> bool:
        """True for decisions on single answers. They are no sample of answers, so there is no mean of them."""
        return self.condition.kind == GradeCondition.Kind.ADJUDICATED

    @property
    def quorum(self) -> str:
        """For a panel: how many members must have judged an answer before it gets a score."""
        seats = len(list_panel_members(self.condition))
        least = self.condition.parameters.get("quorum")
        return f"at least {least} of {seats} members must have given a score" if least else f"all {seats} must judge"

    @property
    def stop_reasons(self) -> list[str]:
        return [reason for run in self.runs if (reason := run.current_stop_reason)]


def list_grader_rows(experiment: Experiment) -> list[GraderRow]:
    """Return the lines in the order in which the conditions were created, in a constant number of queries."""
    conditions = list(
        experiment.grade_conditions.select_related(
            "grader__language_model__endpoint",
            "grader__rubric",
            "grader__text_set",
            "rubric",
            "panel",
            "judge_condition",
        )
        .prefetch_related("panel__graders__rubric")
        .order_by("pk")
    )
    runs = _list_runs(experiment)
    related_models = _list_related_models(experiment, conditions)
    scores = get_by_condition(SCORES, conditions, conditions)
    names = {condition.pk: condition.label for condition in conditions}
    return [
        GraderRow(
            condition,
            tuple(runs.get(condition.judge_condition_id, ())),
            scores[condition.pk],
            related_models.get(condition.pk, ()),
            tuple((names.get(pk, str(pk)), n) for pk, n in _list_missing(scores[condition.pk])),
        )
        for condition in conditions
    ]


def _list_missing(scores: Cached[VerdictScores]) -> tuple[tuple[int, int], ...]:
    return scores.value.missing if scores.value else ()


def list_rubric_tests(experiment: Experiment) -> list[Run]:
    """Return the runs of judges that only tested a rubric, newest first. Their verdicts are not gradings."""
    runs = Run.objects.filter(experiment=experiment, condition__stage="judge", condition__grade_condition=None)
    return list(runs.with_design().order_by("-pk")[:20])


def _list_runs(experiment: Experiment) -> dict[int | None, list[Run]]:
    found: dict[int | None, list[Run]] = {}
    judging = Run.objects.filter(experiment=experiment, condition__stage="judge")
    for run in judging.with_design().order_by("wave__number", "pk"):
        found.setdefault(run.condition_id, []).append(run)
    return found


def _list_related_models(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, tuple[str, ...]]:
    """Return the answering models of the judge's family by condition; for a panel, of any member's family."""
    solvers = list_solvers(experiment)
    found = {
        condition.pk: tuple(model.name for model in find_same_family(solvers, condition.grader))
        for condition in conditions
        if condition.grader is not None
    }
    for condition in conditions:
        if members := list_panel_members(condition):
            names = [name for member in members for name in found.get(member, ())]
            found[condition.pk] = tuple(sorted(set(names)))
    return found


def is_changing(runs: Iterable[Run], for_s: float) -> bool:
    """Return True if a judge is running, or ended so recently that its last replies may still be unread."""
    since = timezone.now() - timedelta(seconds=for_s)
    return any(run.status in Run.UNDER_WAY or (run.finished_at and run.finished_at > since) for run in runs)


@dataclass(frozen=True, slots=True)
class PairwiseRater:
    """A judge, or the people of a queue. people: the number of people who gave a verdict; 0 for a judge."""

    key: str
    label: str
    conditions: tuple[GradeCondition, ...]
    people: int = 0


def list_pairwise_raters(rows: Sequence[GraderRow]) -> list[PairwiseRater]:
    """Return judges that gave a verdict, then people. The choices of all people of one queue are combined."""
    pairwise = [row for row in rows if row.in_pairs and (row.totals.done or row.scores.preferred)]
    judges = [row for row in pairwise if row.condition.kind != GradeCondition.Kind.PERSON]
    queues: dict[str, list[GradeCondition]] = {}
    for row in pairwise:
        if row.condition.kind == GradeCondition.Kind.PERSON:
            queues.setdefault(row.condition.parameters["queue"], []).append(row.condition)
    return [
        *(PairwiseRater(str(row.condition.pk), row.label, (row.condition,)) for row in judges),
        *(
            PairwiseRater(f"people-{name}", f"people of {name} ({people[0].rubric})", tuple(people), len(people))
            for name, people in queues.items()
        ),
    ]


def list_standings(rows: Sequence[GraderRow]) -> list[tuple[PairwiseRater, Cached[PairwiseStanding]]]:
    """Return each rater with its result, so that people's and judges' wins are shown side by side."""
    all_conditions, raters = [row.condition for row in rows], list_pairwise_raters(rows)
    found = get_by_condition(PAIRS, [rater.conditions[0] for rater in raters], all_conditions)
    return [(rater, found[rater.conditions[0].pk]) for rater in raters]
