"""The consistency check of decided points: their counts against the rows, by the rule version that decided them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evalsite.lib.text.number_format import format_count
from grading_app.adaptive.decisions import CountedPoint, count_answers, find_rule
from grading_app.models import GradeCondition
from runs_app.models import Experiment, Point
from runs_app.planning.points import read_adaptive_spec
from runs_app.scorers.scoring_rules import RULES_VERSION


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
