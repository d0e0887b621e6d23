"""Panels in an experiment: the combined gradings of several judges on one answer.

A panel's gradings belong to its own condition, so exports, means and agreement read a panel like any judge.
One idempotent statement computes them from the members' rows, each time after verdicts are read.
A member without a readable verdict has no vote.
Without a quorum, an answer gets its panel grading once all members have graded it.
With a quorum, it gets a row after the first member. The row has a code until enough members gave a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import transaction

from evalsite.lib.sql import open_raw_cursor
from evalsite.lib.text.hashing import build_condition_id, slugify_name
from grading_app.grading.judging import grade_conditions as grade_conditions_module
from grading_app.models import GradeCondition, Grader, Panel, Rubric
from grading_app.models.gradings import allow_superseding
from runs_app.models import Experiment
from runs_app.planning.design import get_condition_hash
from runs_app.planning.work import PlanError

# A majority is more than half of the members with a score. A tie has no majority and gets an error code.
COMBINED_SCORE = {
    "mean": "avg(g.score)",
    "median": "percentile_cont(0.5) WITHIN GROUP (ORDER BY g.score)",
    "majority": """CASE WHEN 2 * max(same.n) > count(g.score)
        THEN min(g.score) FILTER (WHERE 2 * same.n > same.total) END""",
}
WRITE = """INSERT INTO grading_app_grading AS existing
    (condition_id, trial_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
SELECT %(panel)s, trial_id, score, '', score IS NOT NULL,
    CASE WHEN score IS NOT NULL THEN '' WHEN votes < %(quorum)s THEN 'no_quorum'
        WHEN votes = 0 THEN 'no_member_scored' ELSE 'no_majority' END, '', detail, now()
FROM (
    SELECT g.trial_id, CASE WHEN count(g.score) >= coalesce(%(quorum)s, 1) THEN {combined} END AS score,
        count(g.score) AS votes, jsonb_build_object('members', jsonb_object_agg(m.grade_condition_id, g.score),
            'votes', count(g.score), 'seats', cardinality(%(members)s)) AS detail
    FROM grading_app_grading g
    JOIN grading_app_gradecondition m ON m.id = g.condition_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE o.score = g.score) AS n, count(o.score) AS total FROM grading_app_grading o
        WHERE o.trial_id = g.trial_id AND o.condition_id = ANY(%(members)s)) same
    WHERE g.condition_id = ANY(%(members)s)
    GROUP BY g.trial_id HAVING %(quorum)s::int IS NOT NULL OR count(*) = cardinality(%(members)s)) combined
ON CONFLICT (condition_id, trial_id) DO UPDATE SET score = excluded.score, parse_ok = excluded.parse_ok,
    parse_error = excluded.parse_error, detail = excluded.detail, created_at = excluded.created_at
WHERE (existing.score, existing.detail, existing.parse_error)
    IS DISTINCT FROM (excluded.score, excluded.detail, excluded.parse_error)"""


def add_panel(experiment: Experiment, panel: Panel) -> GradeCondition:
    """Return the panel's condition in this experiment, creating it if needed, and refresh its gradings.

    Raise PlanError if the members' scores cannot be combined, or if a member does not judge here.
    """
    graders = list(panel.graders.select_related("rubric", "language_model__endpoint", "sampler", "text_set"))
    for problem in find_member_problems(graders):
        raise PlanError([problem])
    conditions = {grader: grade_conditions_module.find_condition(experiment, grader) for grader in graders}
    if missing := [str(grader) for grader, condition in conditions.items() if condition is None]:
        raise PlanError(
            [f"{', '.join(missing)} did not judge {experiment} yet; request verdicts from each member first"]
        )
    members = [condition for condition in conditions.values() if condition is not None]
    if panel.quorum and panel.quorum > len(members):
        raise PlanError([f"quorum: panel {panel} needs {panel.quorum} scores and has {len(members)} members"])
    quorum = {"quorum": panel.quorum} if panel.quorum else {}
    content = {"members": sorted(member.grade_condition_id for member in members), "rule": panel.rule, **quorum}
    with transaction.atomic():
        condition, _ = GradeCondition.objects.get_or_create(
            experiment=experiment,
            grade_condition_id=build_condition_id(slugify_name(panel.name), content),
            defaults={
                "kind": GradeCondition.Kind.PANEL,
                "panel": panel,
                "parameters": {"rule": panel.rule, "members": [member.pk for member in members], **quorum},
            },
        )
        refresh_panel(condition)
    return condition


def find_member_problems(graders: Sequence[Grader]) -> Iterator[str]:
    """Yield the reasons why the scores of these graders cannot be combined."""
    rubrics = {grader.rubric for grader in graders}
    if len(graders) < 2:
        yield "a panel needs at least two graders"
    if any(rubric.kind == Rubric.Kind.PAIRWISE for rubric in rubrics):
        yield "a panel combines scores; graders that compare two answers give no scores"
    elif len({_get_score_range(rubric) for rubric in rubrics}) > 1:
        yield f"the rubrics of a panel must have the same scale; these differ: {', '.join(sorted(map(str, rubrics)))}"
    by_identity: dict[str, list[str]] = {}
    for grader in sorted(graders, key=str):
        by_identity.setdefault(get_condition_hash(grader.grade_condition_id), []).append(str(grader))
    if duplicates := next((names for names in by_identity.values() if len(names) > 1), []):
        yield f"{' and '.join(duplicates)} send the same requests to the same model; a panel needs different judges"


def _get_score_range(rubric: Rubric) -> Any:
    if rubric.kind == Rubric.Kind.SCORE:
        return rubric.scale_min, rubric.scale_max
    if rubric.kind == Rubric.Kind.LABEL:
        scores = [float(label.get("score", index)) for index, label in enumerate(rubric.labels)]
        return min(scores), max(scores)
    return 0.0, 1.0


def refresh_all_panels(experiment: Experiment) -> int:
    """Refresh every panel of the experiment. Return the number of gradings that were added or changed."""
    return sum(refresh_panel(panel) for panel in experiment.grade_conditions.filter(kind=GradeCondition.Kind.PANEL))


def refresh_panel(condition: GradeCondition) -> int:
    """Recompute the panel's gradings from its members' gradings. Return the number of rows added or changed."""
    rule, members, quorum = (condition.parameters.get(name) for name in ("rule", "members", "quorum"))
    with allow_superseding(), open_raw_cursor() as cursor:
        cursor.execute(
            WRITE.format(combined=COMBINED_SCORE[str(rule)]),
            {"panel": condition.pk, "members": members, "quorum": quorum},
        )
        return int(cursor.rowcount)
