"""The decisions on points of an adaptive run: grade the answers, count them, and apply the stopping rule."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from evalsite.lib.stats import AnswerSums, estimate_effective_size
from grading_app.scoring.grading import grade_trials
from runs_app.engine import adaptive_rounds
from runs_app.engine.adaptive_rounds import PointDecision
from runs_app.engine.database_recovery import OUTAGES
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.models import Experiment, Point, Run
from runs_app.planning.points import GUESS, read_adaptive_spec, read_key
from runs_app.scorers.scoring_rules import ScoringRule
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
