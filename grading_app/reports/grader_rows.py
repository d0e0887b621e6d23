"""One line for each way in which an experiment's answers are graded: progress, mean, failures by code, cost, flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from grading_app.comparison.raters import grade_label
from grading_app.judging.grade_conditions import kin_among, solvers_of
from grading_app.models import GradeCondition, Rubric
from grading_app.reports.verdict_cache import CachedAggregate, kept
from grading_app.reports.verdict_stats import SCORES, Scores, members_of
from runs_app.models import Experiment, Run
from runs_app.monitoring.progress import Totals


@dataclass(frozen=True, slots=True)
class GradeLine:
    """A grade condition with its runs (none for a rule or a panel) and what came of them. kin: names of the models that
    are of the judge's own family. missing: of a panel, its members by name with how many answers each lacks."""

    condition: GradeCondition
    runs: tuple[Run, ...]
    kept: CachedAggregate[Scores]
    kin: tuple[str, ...] = ()
    missing: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        return grade_label(self.condition)

    @property
    def scores(self) -> Scores:
        """Of no verdict, while none was added up."""
        return self.kept.value or Scores()

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
    def verdicts(self) -> int:
        """On pairs: one of each in each order, the newest, read or not."""
        return self.scores.preferred + self.scores.unread

    @property
    def quorum(self) -> str:
        """Of a panel: who must have judged an answer for it to get a score."""
        seats = len(members_of(self.condition))
        wanted = self.condition.parameters.get("quorum")
        return f"at least {wanted} of {seats} members must have given a score" if wanted else f"all {seats} must judge"

    @property
    def stop_reasons(self) -> list[str]:
        return [reason for run in self.runs if (reason := run.current_stop_reason)]


def grade_lines(experiment: Experiment) -> list[GradeLine]:
    """In the order in which they were made; a constant number of queries."""
    conditions = list(
        experiment.grade_conditions.select_related(
            "grader__language_model__endpoint",
            "grader__rubric",
            "grader__text_set",
            "rubric",
            "panel",
            "judge_condition",
        ).order_by("pk")
    )
    runs = _runs_of(experiment)
    kin = _kin_of(experiment, conditions)
    scores = kept(SCORES, conditions, conditions)
    names = {condition.pk: grade_label(condition) for condition in conditions}
    return [
        GradeLine(
            condition,
            tuple(runs.get(condition.judge_condition_id, ())),
            scores[condition.pk],
            kin.get(condition.pk, ()),
            tuple((names.get(pk, str(pk)), n) for pk, n in _missing(scores[condition.pk])),
        )
        for condition in conditions
    ]


def _missing(scores: CachedAggregate[Scores]) -> tuple[tuple[int, int], ...]:
    return scores.value.missing if scores.value else ()


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
        if members := members_of(condition):
            names = [name for member in members for name in found.get(member, ())]
            found[condition.pk] = tuple(sorted(set(names)))
    return found


def is_moving(runs: Iterable[Run], for_s: float) -> bool:
    """Whether a judge is at work or ended so recently that its last replies may not be read yet."""
    since = timezone.now() - timedelta(seconds=for_s)
    return any(run.status in Run.UNDER_WAY or (run.finished_at and run.finished_at > since) for run in runs)
