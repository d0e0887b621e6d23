"""The decisions on points of an adaptive run, and their consistency check.

Deciding grades the answers, counts them, and applies the stopping rule. The check compares the counts of decided points
with the rows, by the rule version that decided them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from evalsite.lib.stats import AnswerSums, estimate_effective_size
from evalsite.lib.text.number_format import format_count
from grading_app.grading.scoring import grade_trials
from grading_app.models import GradeCondition
from runs_app.engine import adaptive_rounds
from runs_app.engine.adaptive_rounds import PointDecision
from runs_app.engine.recovery import OUTAGES
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.models import Experiment, Point, Run
from runs_app.planning.points import GUESS, read_adaptive_spec, read_key
from runs_app.scorers.scoring_rules import RULES_VERSION, ScoringRule
from runs_app.stopping.rules import PointRatings, Tally

logger = logging.getLogger("evalsite.drain")

# The planned trials of these points: the repetitions of the items that are drawn so far.
PLANNED_TRIALS = """
FROM runs_app_point p CROSS JOIN LATERAL unnest(p.items[1:least(p.n_planned, p.n_items)]) AS drawn (item)
JOIN runs_app_trial t ON t.run_id = p.run_id AND t.item_id = drawn.item
    AND t.dimension_id IS NOT DISTINCT FROM p.dimension_id
"""
ANSWERED = f"SELECT t.id {PLANNED_TRIALS} WHERE p.id = ANY(%(points)s) AND t.status = 'done' AND NOT t.truncated"
# If the rule has a context limit, a longer answer counts as truncated.
IS_TRUNCATED = "coalesce(g.parse_error = 'truncated', false)"
# Grouped by item first, because a point's mean rating is the mean of its items' means.
COUNTS = f"""
WITH of_item AS (
    SELECT p.id, t.item_id, count(*) FILTER (WHERE answered AND g.score = 1) AS correct,
        count(*) FILTER (WHERE answered AND g.score IS NOT NULL) AS total,
        count(*) FILTER (WHERE t.status = 'done' AND (t.truncated OR {IS_TRUNCATED})) AS truncated,
        coalesce(sum({GUESS}) FILTER (WHERE answered AND g.score IS NOT NULL), 0)::float8 AS guess_chances,
        count(*) FILTER (WHERE answered AND g.score IS NULL AND NOT {IS_TRUNCATED}) AS unread,
        count(*) FILTER (WHERE t.status = 'failed') AS failed, avg(g.score) FILTER (WHERE answered) AS mean
    {PLANNED_TRIALS}
    JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN grading_app_grading g ON g.condition_id = %(rule)s AND g.trial_id = t.id
    CROSS JOIN LATERAL (SELECT t.status = 'done' AND NOT t.truncated AS answered) AS state
    WHERE p.id = ANY(%(points)s) GROUP BY p.id, t.item_id
)
SELECT p.id, p.key, p.n_items, sum(correct)::int, sum(total)::int, sum(truncated)::int, sum(of_item.guess_chances),
    sum(unread)::int, sum(failed)::int, count(of_item.mean), coalesce(avg(of_item.mean), 0),
    coalesce(stddev_samp(of_item.mean), 0), d.scale_min, d.scale_max, count(*) FILTER (WHERE total > 0),
    coalesce(sum(total ^ 2), 0)::float8, coalesce(sum(correct ^ 2), 0)::float8,
    coalesce(sum(total * correct), 0)::float8
FROM of_item JOIN runs_app_point p ON p.id = of_item.id LEFT JOIN runs_app_dimension d ON d.id = p.dimension_id
GROUP BY p.id, d.id
"""  # noqa: S608 - constants


def decide_due() -> int:
    """Decide the points whose round is complete, at most a hundred. Return the number of points decided.

    Workers and the sweep call this. It is safe at any time, and from several processes at once.
    """
    decided = 0
    for counter_keys, points in adaptive_rounds.find_due_points().items():
        try:
            experiment = Experiment.objects.get(pk=counter_keys.experiment_id)
            spec = read_adaptive_spec(experiment)
            if spec is None:
                raise ValueError("the experiment has no stopping rule")
            answered_trials = [trial for (trial,) in fetch_rows(ANSWERED, {"points": list(points)})]
            rule = find_rule(experiment, spec)
            counted_points = count_answers(points, grade_trials(experiment, rule, answered_trials))
            decisions = [
                counted_point.decide(spec, points, experiment.samples, rule) for counted_point in counted_points
            ]
            decided += adaptive_rounds.write_decisions(counter_keys, decisions)
        except OUTAGES:
            raise
        except Exception as error:
            # A design that cannot be decided must not block others, and must not be retried forever.
            logger.exception("the rounds of run %s cannot be decided", counter_keys.run_id)
            # Stop the run, because processes would retry it every second. Close a cancelled run's points without
            # counts.
            reason = f"Its rounds cannot be decided: {error}"[:500]
            Point.objects.open().filter(run=counter_keys.run_id, run__status=Run.Status.CANCELLED).update(
                status=Point.Status.CANCELLED, reason=reason
            )
            Run.objects.filter(pk=counter_keys.run_id).transition(
                sources=[Run.Status.RUNNING], target=Run.Status.STOPPED, by="engine", reason=reason, stop_reason=reason
            )
    return decided


def count_answers(points: Iterable[int], rule: int | None) -> list[CountedPoint]:
    """Return the current counts of these points from the rows, by the gradings of this condition."""
    return [CountedPoint(*row) for row in fetch_rows(COUNTS, {"points": list(points), "rule": rule})]


def find_rule(experiment: Experiment, spec: AdaptiveSpec) -> ScoringRule:
    """Return the design's rule with the scorer of the specification, with its parameters.

    So answers are not graded again by the same scorer.
    """
    return next((rule for rule in experiment.list_rules() if rule.scorer == spec.scorer), ScoringRule(spec.scorer))


@dataclass(frozen=True, slots=True)
class CountedPoint:
    """The counts of a point from the rows. total: scored answers. unread: answers without a score."""

    point: int
    key: Any
    items: int
    correct: int
    total: int
    truncated: int
    guess_chances: float
    unread: int
    failed: int
    rated_items: int
    mean: float
    spread: float
    least: int | None
    highest: int | None
    scored_items: int
    sizes_squared: float
    correct_squared: float
    sizes_by_correct: float

    def tally(self, confidence: float) -> Tally | PointRatings:
        """Return the counts for the stopping rule. The effective number of answers depends on the confidence."""
        if self.least is None or self.highest is None:
            guesses = min(self.guess_chances, float(self.total))
            return Tally(self.correct, self.total, self.truncated, guesses, self._effective(confidence))
        scale = (self.least, self.highest)
        return PointRatings(self.rated_items, self.total, self.mean, self.spread, scale, self.truncated)

    def _effective(self, confidence: float) -> float | None:
        """Return the effective number of answers; None if each item has one."""
        if self.sizes_squared <= self.total:
            return None
        sums = AnswerSums(
            float(self.total), self.scored_items, self.sizes_squared, float(self.correct), self.correct_squared,
            self.sizes_by_correct,
        )  # fmt: skip
        return float(estimate_effective_size(sums, confidence))

    def decide(self, spec: AdaptiveSpec, points: Mapping[int, int], samples: int, rule: ScoringRule) -> PointDecision:
        point_spec = spec.for_point(read_key(self.key))
        n_planned, max_answers = points[self.point], min(point_spec.max, self.items * samples)
        tally = self.tally(point_spec.confidence)
        decision = point_spec.rule(max_answers).decide(tally, n_planned=n_planned)
        next_planned, rule_id = min(n_planned + point_spec.round, max_answers), rule.grade_condition_id
        return PointDecision(self.point, n_planned, tally, self.unread, self.failed, decision, next_planned, rule_id)


def recount_decided_points(experiment: Experiment | None = None) -> list[tuple[Any, ...]]:
    """Return the stored and the recomputed counts of all decided points, or of those of one experiment, in pairs.

    The pairs follow the key of the point, in the order of `consistency_check.POINT_COUNTERS`. Scored and unread answers
    are one count, because an empty answer that was not graded may be graded later without changing the decision. A
    cancelled point may have been closed without counts.
    """
    experiments = _list_experiments().filter(pk=experiment.pk) if experiment else _list_experiments()
    return [row for decided in experiments for row in recount_points_of(decided)]


def describe_earlier_rules() -> list[str]:
    """Return the notes of `describe_earlier_rule` on all experiments."""
    texts = ((experiment, describe_earlier_rule(experiment)) for experiment in _list_experiments())
    return [f"{experiment}: {text}" for experiment, text in texts if text]


def describe_earlier_rule(experiment: Experiment) -> str:
    """Return a note on the points that an earlier version of the rule decided; "" if there are none."""
    names = _list_rule_names(experiment)
    decided = _list_decided_points(experiment).only("rounds", "decided_at") if names else []
    conditions = _find_conditions(experiment, names)
    earlier = [point for point in decided if _find_deciding_rule(point, names, conditions) not in ("", names[0])]
    if not earlier:
        return ""
    n = len(earlier)
    verb = "point was" if n == 1 else "points were"
    return (
        f"{format_count(n)} {verb} decided by an earlier version of the rule than {names[0]}, the current version. "
        "These decisions keep their counts, and are checked against the grades of their version."
    )


def _list_experiments() -> Any:
    return (
        Experiment.objects.filter(runs__points__status__in=Point.DECIDED)
        .exclude(status=Experiment.Status.STORED)
        .distinct()
        .order_by("pk")
    )


def _list_decided_points(experiment: Experiment) -> Any:
    return Point.objects.filter(run__experiment=experiment, status__in=Point.DECIDED)


def recount_points_of(experiment: Experiment) -> list[tuple[Any, ...]]:
    """Return the stored and the recomputed counts of the decided points of one experiment, in pairs."""
    points = _list_decided_points(experiment).defer("items").in_bulk()
    names = _list_rule_names(experiment)
    conditions = _find_conditions(experiment, names)
    by_rule: dict[str, list[int]] = defaultdict(list)
    for point in points.values():
        by_rule[_find_deciding_rule(point, names, conditions)].append(point.pk)
    keys = {name: condition.pk for name, condition in conditions.items()}
    counted_points = [
        counted_point
        for name, point_keys in by_rule.items()
        for counted_point in count_answers(point_keys, keys.get(name))
    ]
    return [_pair_counts(points[counted_point.point], counted_point) for counted_point in counted_points]


def _list_rule_names(experiment: Experiment) -> list[str]:
    """Return the grade condition ids of the design's rule, the newest version first; empty if there is no rule."""
    spec = read_adaptive_spec(experiment)
    rule = find_rule(experiment, spec) if spec else None
    return [rule.build_condition_id(version) for version in range(RULES_VERSION, 0, -1)] if rule else []


def _find_conditions(experiment: Experiment, names: Sequence[str]) -> dict[str, GradeCondition]:
    conditions = experiment.grade_conditions.filter(grade_condition_id__in=names)
    return {condition.grade_condition_id: condition for condition in conditions}


def _find_deciding_rule(point: Point, names: Sequence[str], conditions: dict[str, GradeCondition]) -> str:
    """Return the grade condition id of the rule that decided the point.

    The last round records it. If it does not, return the newest version that existed when the point was decided.
    """
    recorded: str = point.rounds[-1].get("graded_by", "") if point.rounds else ""
    if recorded:
        return recorded
    existing = [conditions[name] for name in names if name in conditions]
    earlier = (condition for condition in existing if point.decided_at and condition.created_at <= point.decided_at)
    deciding = next(earlier, existing[-1] if existing else None)
    return deciding.grade_condition_id if deciding else ""


def _pair_counts(point: Point, counted: CountedPoint) -> tuple[Any, ...]:
    rated = counted.rated_items if point.dimension_id else 0
    mean, spread = (counted.mean, counted.spread) if rated else (None, None)
    return (
        f"{point.pk}",
        *(point.n_correct, 0 if point.dimension_id else counted.correct),
        *(point.n_truncated, counted.truncated),
        *(point.n_failed, counted.failed),
        *(point.n_total + point.n_unread, counted.total + counted.unread),
        *(point.n_rated_items, rated),
        *(point.mean, mean),
        *(point.spread, spread),
    )
