"""The consistency check of decided points: their counts against the rows, by the rule version that decided them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from evalsite.lib.text.number_format import format_count
from grading_app.adaptive.decisions import CountedPoint, count_answers, find_rule
from grading_app.models import GradeCondition
from grading_app.scoring.grading import RULES_VERSION
from runs_app.models import Experiment, Point
from runs_app.planning.points import read_adaptive_spec


def recount_decided_points() -> list[tuple[Any, ...]]:
    """Return the stored and the recomputed counts of all decided points, in pairs.

    The pairs follow `consistency_check.POINT_COUNTERS`, after the key of the point.

    Scored and unread answers form one number. A blank answer that was left out of grading may be graded later, and a
    decision made without it stays right. A cancelled point may have been closed without counts.
    """
    return [row for experiment in _list_experiments() for row in _recount(experiment)]


def describe_earlier_rules() -> list[str]:
    """Return the text of `describe_earlier_rule` for each experiment that has one."""
    told = ((experiment, describe_earlier_rule(experiment)) for experiment in _list_experiments())
    return [f"{experiment}: {text}" for experiment, text in told if text]


def describe_earlier_rule(experiment: Experiment) -> str:
    """Return a note on points that another version of the rule decided, or an empty text if there are none."""
    names = _list_rule_names(experiment)
    decided = _list_decided_points(experiment).only("rounds", "decided_at") if names else []
    conditions = _find_conditions(experiment, names)
    earlier = [point for point in decided if _find_deciding_rule(point, names, conditions) not in ("", names[0])]
    if not earlier:
        return ""
    n = len(earlier)
    were = "point was" if n == 1 else "points were"
    return (
        f"{format_count(n)} {were} decided by an earlier version of the rule than {names[0]}, which grades now. "
        "What was decided stays, with the counts of then, and is proven from the grades of then."
    )


def _list_experiments() -> Iterable[Experiment]:
    return Experiment.objects.filter(runs__points__status__in=Point.DECIDED).distinct().order_by("pk")


def _list_decided_points(experiment: Experiment) -> Any:
    return Point.objects.filter(run__experiment=experiment, status__in=Point.DECIDED)


def _recount(experiment: Experiment) -> list[tuple[Any, ...]]:
    points = _list_decided_points(experiment).defer("items").in_bulk()
    names = _list_rule_names(experiment)
    conditions = _find_conditions(experiment, names)
    by_rule: dict[str, list[int]] = defaultdict(list)
    for point in points.values():
        by_rule[_find_deciding_rule(point, names, conditions)].append(point.pk)
    keys = {name: made.pk for name, made in conditions.items()}
    found = [one for name, of_rule in by_rule.items() for one in count_answers(of_rule, keys.get(name))]
    return [_pair_counts(points[one.point], one) for one in found]


def _list_rule_names(experiment: Experiment) -> list[str]:
    """Return the grade condition ids of the design's rule, newest version first; empty if the design has no rule."""
    spec = read_adaptive_spec(experiment)
    rule = find_rule(experiment, spec) if spec else None
    return [rule.build_condition_id(version) for version in range(RULES_VERSION, 0, -1)] if rule else []


def _find_conditions(experiment: Experiment, names: Sequence[str]) -> dict[str, GradeCondition]:
    made = experiment.grade_conditions.filter(grade_condition_id__in=names)
    return {one.grade_condition_id: one for one in made}


def _find_deciding_rule(point: Point, names: Sequence[str], conditions: dict[str, GradeCondition]) -> str:
    """Return the grade condition id of the rule that decided the point.

    The last round records it. Older rounds did not record it; for them, return the newest version of that time.
    """
    said: str = point.rounds[-1].get("graded_by", "") if point.rounds else ""
    if said:
        return said
    there = [conditions[name] for name in names if name in conditions]
    before = (one for one in there if point.decided_at and one.created_at <= point.decided_at)
    found = next(before, there[-1] if there else None)
    return found.grade_condition_id if found else ""


def _pair_counts(point: Point, found: CountedPoint) -> tuple[Any, ...]:
    rated = found.rated_items if point.dimension_id else 0
    mean, spread = (found.mean, found.spread) if rated else (None, None)
    return (
        f"{point.pk}",
        *(point.n_correct, 0 if point.dimension_id else found.correct),
        *(point.n_truncated, found.truncated),
        *(point.n_failed, found.failed),
        *(point.n_total + point.n_unread, found.total + found.unread),
        *(point.n_rated_items, rated),
        *(point.mean, mean),
        *(point.spread, spread),
    )
