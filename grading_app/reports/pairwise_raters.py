"""The raters that chose between answers: each judge, and the people of each queue together, with their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grading_app.models import GradeCondition
from grading_app.reports.cached_aggregates import Cached
from grading_app.reports.grader_rows import GradeLine
from grading_app.reports.pairwise_stats import PAIRS, PairwiseStanding
from grading_app.reports.verdict_aggregates import get_by_condition


@dataclass(frozen=True, slots=True)
class Chooser:
    """A judge, or the people of a queue. people: the number of people who gave a verdict; 0 for a judge."""

    key: str
    label: str
    conditions: tuple[GradeCondition, ...]
    people: int = 0


def choosers(lines: Sequence[GradeLine]) -> list[Chooser]:
    """Return judges that gave a verdict, then people. The choices of all people of one queue are combined."""
    compared = [line for line in lines if line.in_pairs and (line.totals.done or line.scores.preferred)]
    judges = [line for line in compared if line.condition.kind != GradeCondition.Kind.PERSON]
    queues: dict[str, list[GradeCondition]] = {}
    for line in compared:
        if line.condition.kind == GradeCondition.Kind.PERSON:
            queues.setdefault(line.condition.parameters["queue"], []).append(line.condition)
    return [
        *(Chooser(str(line.condition.pk), line.label, (line.condition,)) for line in judges),
        *(
            Chooser(f"people-{name}", f"people of {name} ({people[0].rubric})", tuple(people), len(people))
            for name, people in queues.items()
        ),
    ]


def standings(lines: Sequence[GradeLine]) -> list[tuple[Chooser, Cached[PairwiseStanding]]]:
    """Return each rater with its result, so that people's and judges' wins are shown side by side."""
    among, chose = [line.condition for line in lines], choosers(lines)
    found = get_by_condition(PAIRS, [chooser.conditions[0] for chooser in chose], among)
    return [(chooser, found[chooser.conditions[0].pk]) for chooser in chose]
