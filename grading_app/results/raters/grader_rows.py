"""The rows of the grading page: progress, mean, failures by code, cost and flags of each grade condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from grading_app.models import GradeCondition, Grader, Rubric
from grading_app.results.cached_aggregates import Cached
from grading_app.results.frames import RatedDimension
from grading_app.results.leaderboard_tables import describe_intervals
from grading_app.results.raters.pairwise_stats import PAIRS, PairwiseStanding, RankedCondition
from grading_app.results.raters.verdict_stats import SCORES, AnswerScores, VerdictScores, get_aggregates_by_condition
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Experiment, Run, TextSet
from runs_app.models.totals import Totals


@dataclass(frozen=True, slots=True)
class GraderRow:
    """A grade condition with its runs (none for a rule or a panel) and their results.

    related_models: the names of the answering models of the judge's own family. missing: for a panel, (name of a
    member, number of answers without its verdict).
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
        """The scores; empty before a worker has computed them."""
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
        counts: dict[str, int] = {}
        for run in self.runs:
            for name, n in run.errors.items():
                counts[name] = counts.get(name, 0) + n
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    @property
    def in_pairs(self) -> bool:
        return self.condition.is_pairwise

    @property
    def verdicts(self) -> int:
        """The number of pairwise verdicts, readable or not. Only the newest verdict on a pair in each order counts."""
        return self.scores.preferred + self.scores.unread

    @property
    def is_adjudication(self) -> bool:
        """True for decisions on single answers. These answers are not a sample, so they have no mean."""
        return self.condition.kind == GradeCondition.Kind.ADJUDICATED

    @property
    def quorum(self) -> str:
        """For a panel: how many members must have judged an answer for it to get a score."""
        members = len(self.condition.list_panel_members())
        minimum = self.condition.parameters.get("quorum")
        return (
            f"at least {minimum} of {members} members must have given a score"
            if minimum
            else f"all {members} must judge"
        )

    @property
    def stop_reasons(self) -> list[str]:
        return [reason for run in self.runs if (reason := run.current_stop_reason)]


def list_grader_rows(experiment: Experiment) -> list[GraderRow]:
    """Return the rows in the order in which the conditions were created, in a constant number of queries."""
    conditions = list(
        experiment.grade_conditions.select_related(
            "grader__language_model__endpoint",
            "grader__rubric",
            "grader__text_set",
            "rubric",
            "panel",
            "judge_condition__model__endpoint",
        )
        .prefetch_related("panel__graders__rubric")
        .order_by("pk")
    )
    runs: dict[int | None, list[Run]] = {}
    judge_runs = Run.objects.filter(experiment=experiment, condition__stage="judge")
    for run in judge_runs.with_design().order_by("wave__number", "pk"):
        runs.setdefault(run.condition_id, []).append(run)
    related_models = _list_related_models(experiment, conditions)
    scores = get_aggregates_by_condition(SCORES, conditions, conditions)
    names = {condition.pk: condition.label for condition in conditions}
    return [
        GraderRow(
            condition,
            tuple(runs.get(condition.judge_condition_id, ())),
            scores[condition.pk],
            related_models.get(condition.pk, ()),
            tuple((names.get(pk, str(pk)), n) for pk, n in (found.missing if found else ())),
        )
        for condition in conditions
        for found in [scores[condition.pk].value]
    ]


def _list_related_models(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, tuple[str, ...]]:
    """Return the answering models of the judge's family by condition; for a panel, of the families of all members."""
    solvers = experiment.list_solvers()
    related_models = {
        condition.pk: tuple(model.name for model in condition.judge_condition.model.find_relatives(solvers))
        for condition in conditions
        if condition.judge_condition is not None
    }
    for condition in conditions:
        if members := condition.list_panel_members():
            names = [name for member in members for name in related_models.get(member, ())]
            related_models[condition.pk] = tuple(sorted(set(names)))
    return related_models


def is_changing(runs: Iterable[Run], seconds: float) -> bool:
    """Return True if a judge runs, or ended in the last `seconds`, so that replies may not be recorded yet."""
    since = timezone.now() - timedelta(seconds=seconds)
    return any(run.status in Run.UNDER_WAY or (run.finished_at and run.finished_at > since) for run in runs)


@dataclass(frozen=True, slots=True)
class PairwiseRater:
    """A judge, or the people of a queue. people: the number of people with a verdict; 0 for a judge."""

    key: str
    label: str
    conditions: tuple[GradeCondition, ...]
    people: int = 0


def list_pairwise_raters(rows: Sequence[GraderRow]) -> list[PairwiseRater]:
    """Return the judges with a verdict, then people. The choices of all people of a queue are combined."""
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
    """Return each pairwise rater with its standing, judges first."""
    all_conditions, raters = [row.condition for row in rows], list_pairwise_raters(rows)
    standings = get_aggregates_by_condition(PAIRS, [rater.conditions[0] for rater in raters], all_conditions)
    return [(rater, standings[rater.conditions[0].pk]) for rater in raters]


def make_verdict_table(
    name: str, scores: Sequence[AnswerScores], labels: Mapping[int, str], dimensions: Mapping[int, RatedDimension]
) -> ResultTable:
    """Return a row for each condition that answered, on each dimension. labels: of the conditions."""
    is_share = any(one.is_share for one in scores)
    columns = [
        ResultColumn("condition", "Answers of"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("mean", "Mean", "share" if is_share else "number"),
        ResultColumn("interval", "95 % interval", "share_interval" if is_share else "interval"),
        ResultColumn("n", "Scores", "count"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("missing", "No score", "count"),
    ]
    rows = [
        {
            "condition": labels.get(one.condition),
            "dimension": found.title if (found := dimensions.get(one.dimension or 0)) else None,
            **{key: getattr(one.score, key) for key in ("mean", "interval", "n", "items", "missing")},
        }
        for one in scores
    ]
    reasons = {
        f"{row['condition']} has no interval: {one.score.reason}.": None
        for row, one in zip(rows, scores, strict=True)
        if one.score.interval is None and one.score.reason
    }
    has_dimensions = any(one.dimension for one in scores)
    columns = [column for column in columns if has_dimensions or column.name != "dimension"]
    formula = describe_intervals(one.score for one in scores if one.score.interval)
    return ResultTable(name, "Scores by condition", columns, rows, formula=formula, notes=list(reasons))


def make_strength_table(name: str, ranked: Iterable[RankedCondition]) -> ResultTable:
    """Return the log-strengths of the conditions that a pairwise rater compared."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("strength", "Strength", "number"),
        ResultColumn("interval", "95 % interval", "interval"),
    ]
    rows = [
        {
            "condition": one.label,
            "strength": one.strength,
            "interval": None if one.low is None or one.high is None else (one.low, one.high),
        }
        for one in ranked
    ]
    formula = (
        "Log-strengths of the Bradley-Terry model with mean 0: a difference of 1 multiplies the odds of winning by "
        "2.72. Intervals: the jackknife over items, and from 1,000 items the percentile bootstrap."
    )
    return ResultTable(name, "Strengths", columns, rows, formula=formula)


@dataclass(frozen=True, slots=True)
class RubricUpgrade:
    """The newer rubric or item rubrics of a judge, and the address of the form that adds the judge with them."""

    parts: tuple[Rubric | TextSet, ...]
    address: str

    @property
    def label(self) -> str:
        return " and ".join(str(part) for part in self.parts)


def find_rubric_upgrades(experiment: Experiment, conditions: Sequence[GradeCondition]) -> dict[int, RubricUpgrade]:
    """Return the judges whose rubric or text set has a newer approved version that no judge uses yet, by condition.

    The number of queries is always two.
    """
    graders = {condition.pk: condition.grader for condition in conditions if condition.grader is not None}
    rubrics = _find_newest(Rubric, (grader.rubric.name for grader in graders.values()))
    sets = _find_newest(TextSet, (grader.text_set.name for grader in graders.values() if grader.text_set))
    used = {_get_identity(grader, grader.rubric, grader.text_set) for grader in graders.values()}
    upgrades = {}
    for pk, grader in graders.items():
        rubric = _find_later(rubrics, grader.rubric)
        texts = _find_later(sets, grader.text_set)
        if (rubric or texts) and _get_identity(grader, rubric or grader.rubric, texts or grader.text_set) not in used:
            initial = {name: part.pk for name, part in (("rubric", rubric), ("texts", texts)) if part}
            parts = tuple(part for part in (rubric, texts) if part)
            upgrades[pk] = RubricUpgrade(parts, get_judge_form_url(experiment, grader=grader.name, **initial))
    return upgrades


def get_judge_form_url(experiment: Experiment, **initial: Any) -> str:
    """Return the address of the judge form, with its fields filled in."""
    return f"{reverse('experiment_judge', args=[experiment.slug])}?{urlencode(initial)}"


def _find_newest(kind: Any, names: Iterable[str]) -> dict[str, Any]:
    approved = kind.objects.filter(name__in=set(names), status=kind.Status.APPROVED)
    return {part.name: part for part in approved.order_by("version")}


def _find_later(newest: dict[str, Any], part: Any) -> Any:
    candidate = newest.get(part.name) if part else None
    return candidate if candidate and candidate.version > part.version else None


def _get_identity(grader: Grader, rubric: Rubric, texts: TextSet | None) -> tuple[Any, ...]:
    return grader.language_model_id, grader.sampler_id, grader.on_empty, grader.longest_answer, rubric, texts
