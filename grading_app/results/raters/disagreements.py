"""The units with the largest disagreements and the neighbours of one unit, in pages by cursor, and their adjudication.

An adjudication is a person's final score of an answer, with a reason. A correction adds another row. The last counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from django.contrib.postgres.aggregates import ArrayAgg
from django.db import connection, transaction
from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q

from evalsite.lib.history import record_changes
from evalsite.lib.permissions import CURATOR, get_roles
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import build_condition_id
from grading_app.models import (
    Adjudication,
    CachedAggregate,
    GradeCondition,
    Grading,
    Rating,
    RatingQueue,
    StoredDisagreement,
)
from grading_app.models.gradings import allow_superseding
from grading_app.models.rubrics import Scale
from grading_app.results.raters.rating_selection import RatingSelection
from grading_app.results.raters.unit_counts import build_ratings_sql
from runs_app.models import Experiment, Trial

SpreadMeasure = Literal["range", "variance"]
PAGE_SIZE = 25

# Both measures are rounded, so that a cursor in an address finds its row again.
SPREADS: dict[SpreadMeasure, str] = {
    "range": "round((max(scaled.value) - min(scaled.value))::numeric, 6)::float8",
    "variance": "round(var_pop(scaled.value)::numeric, 6)::float8",
}
DIFFERING_UNITS = (
    "FROM scaled JOIN scope ON scope.id = scaled.unit GROUP BY scaled.unit HAVING max(scaled.value) > min(scaled.value)"
)
# Sizes are negated: in ascending order, the order of an index, the largest come first, then units by key.
POSITIONS = {by: f"row_number() OVER (ORDER BY -{size}, scaled.unit)" for by, size in SPREADS.items()}
COMPUTED = {
    by: f"""ranked AS MATERIALIZED (
        SELECT scaled.unit, -{size} AS minus, count(*) AS n, {POSITIONS[by]} AS place {DIFFERING_UNITS})"""
    for by, size in SPREADS.items()
}
STORED: dict[SpreadMeasure, str] = {
    by: f"""ranked AS NOT MATERIALIZED (SELECT unit, minus_{by} AS minus, n, rank_by_{by} AS place
        FROM grading_app_storeddisagreement WHERE aggregate_id = %(aggregate)s)"""  # noqa: S608
    for by in SPREADS
}
INSERT = f"""INSERT INTO grading_app_storeddisagreement
        (aggregate_id, unit, n, minus_range, minus_variance, rank_by_range, rank_by_variance)
    SELECT %(aggregate)s, scaled.unit, count(*), -{SPREADS["range"]}, -{SPREADS["variance"]},
        {POSITIONS["range"]}, {POSITIONS["variance"]} {DIFFERING_UNITS}"""
NEIGHBOURS = """SELECT here.unit, -here.minus, here.n, here.place,
        coalesce(%(total)s::bigint, (SELECT count(*) FROM ranked)),
        (SELECT unit FROM ranked WHERE (minus, unit) < (here.minus, here.unit) ORDER BY minus DESC, unit DESC LIMIT 1),
        (SELECT unit FROM ranked WHERE (minus, unit) > (here.minus, here.unit) ORDER BY minus, unit LIMIT 1)
    FROM ranked AS here WHERE here.unit = %(unit)s"""
MAX_REASON_LENGTH = 4_000


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One unit on which raters differ. size: by the requested measure. n: the number of raters."""

    unit: int
    size: float
    n: int

    @property
    def cursor(self) -> str:
        return f"{self.size!r}_{self.unit}"


@dataclass(frozen=True, slots=True)
class DisagreementPage:
    """One page of disagreements, with the cursors of the next and previous page. At the ends, a cursor is empty."""

    disagreements: list[Disagreement]
    after: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class DisagreementPosition:
    """The position of a unit in the order of disagreements, and its neighbours.

    A neighbour is None at the ends. All fields but `total` are None for a unit on which raters agree.
    """

    disagreement: Disagreement | None
    rank: int | None
    total: int
    previous: int | None
    next: int | None


def store_disagreements(aggregate: CachedAggregate, selection: RatingSelection) -> int:
    """Replace the stored disagreements of an aggregate, within the caller's transaction. Return their number."""
    ratings, parameters = build_ratings_sql(selection)
    StoredDisagreement.objects.filter(aggregate=aggregate).delete()
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {ratings} {INSERT}", {**parameters, "aggregate": aggregate.pk})
        return int(cursor.rowcount)


def count_disagreements(selection: RatingSelection) -> int:
    """Return the number of units on which the raters differ."""
    statement, parameters = _select_disagreements(selection, "range", None)
    return int(fetch_rows(f"{statement} SELECT count(*) FROM ranked", parameters)[0][0])  # noqa: S608 - the text above


def _select_disagreements(
    selection: RatingSelection, by: SpreadMeasure, aggregate: CachedAggregate | None
) -> tuple[str, dict[str, Any]]:
    """Return SQL for `ranked` (unit, minus, n, place) with its parameters, from stored rows if there are any."""
    if aggregate is not None:
        return f"WITH {STORED[by]}", {"aggregate": aggregate.pk}
    ratings, parameters = build_ratings_sql(selection)
    return f"WITH {ratings}, {COMPUTED[by]}", parameters


def list_disagreements(
    selection: RatingSelection,
    *,
    by: SpreadMeasure = "range",
    after: str = "",
    before: str = "",
    aggregate: CachedAggregate | None = None,
) -> DisagreementPage:
    """Return the page of disagreements after or before a cursor, the largest first, then by unit.

    aggregate: the aggregate with stored disagreements; None to compute them.
    """
    if len(selection.all_raters) < 2:
        return DisagreementPage([])
    statement, parameters = _select_disagreements(selection, by, aggregate)
    cursor = parse_cursor(before or after)
    cursor_filter = "" if cursor is None else " WHERE (minus, unit) > (%(minus)s, %(unit)s::bigint)"
    order = "minus, unit"
    if before and cursor is not None:
        cursor_filter, order = cursor_filter.replace(">", "<"), "minus DESC, unit DESC"
    size, unit = cursor or (0.0, None)
    rows = fetch_rows(
        f"{statement} SELECT unit, -minus, n FROM ranked{cursor_filter} ORDER BY {order} LIMIT %(limit)s",  # noqa: S608
        {**parameters, "minus": -size, "unit": unit, "limit": PAGE_SIZE + 1},
    )
    disagreements = [Disagreement(*row) for row in rows]
    backwards = bool(before and cursor)
    has_cursor = cursor is not None
    has_more, page = len(disagreements) > PAGE_SIZE, disagreements[:PAGE_SIZE]
    if backwards:
        page = page[::-1]
    if not page:
        return DisagreementPage([])
    after = page[-1].cursor if has_more or backwards else ""
    before = page[0].cursor if (has_more if backwards else has_cursor) else ""
    return DisagreementPage(page, after=after, before=before)


def find_position(
    selection: RatingSelection, unit: int, by: SpreadMeasure = "range", aggregate: CachedAggregate | None = None
) -> DisagreementPosition:
    """Return the position of this unit in the order of `list_disagreements`."""
    statement, parameters = _select_disagreements(selection, by, aggregate)
    total = aggregate.value if aggregate else None  # The stored number saves a count of up to a million rows.
    rows = fetch_rows(f"{statement} {NEIGHBOURS}", {**parameters, "unit": unit, "total": total})
    if not rows:
        return DisagreementPosition(None, None, 0, None, None)
    unit, size, n, *rest = rows[0]
    return DisagreementPosition(Disagreement(unit, size, n), *rest)


def parse_cursor(text: str) -> tuple[float, int] | None:
    """Return the size and the unit of a cursor; None if the text is not a cursor."""
    size, _, unit = text.partition("_")
    try:
        return (float(size), int(unit)) if len(text) < 60 else None
    except ValueError:
        return None


def filter_disagreements(experiments: Iterable[int] | None = None) -> Q:
    """Return a filter for answers that two raters scored differently.

    The raters are judges and people with the same rubric, or people of one queue. Scores by different rubrics are not
    compared, because their scales may differ. Rules, panels and adjudications do not count as raters.

    experiments: primary keys; the filter selects only their answers. None for all. An experiment in which no two raters
    can differ costs nothing, because the filter looks at each answer only of the others.
    """
    raters, queues = GradeCondition.objects.filter(kind__in=("judge", "person")), RatingQueue.objects.all()
    if experiments is not None:
        keys = list(experiments)
        raters, queues = raters.filter(experiment__in=keys), queues.filter(experiment__in=keys)
    pairs = (
        raters.order_by().values("experiment", "rubric").annotate(n=Count("pk"), keys=ArrayAgg("pk")).filter(n__gt=1)
    )
    judged = list(pairs.values_list("experiment", "keys"))
    rated = set(queues.order_by().values_list("experiment", flat=True))
    answers = Q(pk__in=[])
    if judged:
        conditions = [key for _, keys in judged for key in keys]
        gradings = Grading.objects.filter(
            trial=OuterRef("pk"), condition__in=conditions, score__isnull=False
        ).order_by()
        by_rubric = gradings.values("condition__rubric").annotate(low=Min("score"), high=Max("score"))
        compared = Q(run__experiment__in={experiment for experiment, _ in judged})
        answers |= compared & Q(Exists(by_rubric.filter(low__lt=F("high"))))
    if rated:
        ratings = Rating.objects.filter(
            trial=OuterRef("pk"), rival=None, kind=Rating.Kind.ITEM, value__isnull=False, assignment__excluded_at=None
        ).order_by()
        by_queue = ratings.values("assignment__queue", "dimension", "criterion").annotate(
            low=Min("value"), high=Max("value")
        )
        answers |= Q(run__experiment__in=rated) & Q(Exists(by_queue.filter(low__lt=F("high"))))
    return answers


def count_open_disagreements(experiments: Iterable[int]) -> dict[int, int]:
    """Return by experiment how many answers raters scored differently (`filter_disagreements`) and nobody adjudicated.

    experiments: primary keys. Experiments without such an answer are left out.
    """
    adjudications = Adjudication.objects.filter(trial=OuterRef("pk")).order_by()
    answers = Trial.objects.filter(filter_disagreements(experiments), ~Exists(adjudications))
    counts = answers.order_by().values("run__experiment").annotate(n=Count("pk"))
    return dict(counts.values_list("run__experiment", "n"))


class AdjudicationError(ValueError):
    """A score that cannot be stored. The message says why. Nothing was changed."""


def may_adjudicate(user: Any, experiment: Experiment) -> bool:
    """Return True for people who may change the experiment, and for curators.

    The caller must have checked that the user may see the experiment.
    """
    return CURATOR in get_roles(user) or Experiment.objects.editable_by(user).filter(pk=experiment.pk).exists()


@transaction.atomic
def adjudicate(trial: Trial, *, scale: Scale, score: float, reason: str, by: Any) -> Adjudication:
    """Store the final score of this answer on this scale, for the first time or again.

    Raise AdjudicationError if the score, the reason or the answer is not valid.
    """
    if not math.isfinite(score) or not scale.low <= score <= scale.high:
        raise AdjudicationError(f"The score must be on the scale from {scale}.")
    if not reason.strip():
        raise AdjudicationError("Enter a reason. It is stored with the score.")
    if trial.status != Trial.Status.DONE or trial.run.condition.stage != "generate":
        raise AdjudicationError("Only completed answers can be adjudicated.")
    # The grade condition of adjudicated scores on this scale, with its row locked. The lock makes the later of two
    # concurrent adjudications count.
    ends = {"scale_min": scale.low, "scale_max": scale.high}
    condition, _ = GradeCondition.objects.get_or_create(
        experiment=trial.run.experiment,
        grade_condition_id=build_condition_id("adjudicated", {"kind": "adjudicated", **ends}),
        defaults={"kind": GradeCondition.Kind.ADJUDICATED, "parameters": ends},
    )
    condition = GradeCondition.objects.select_for_update().get(pk=condition.pk)
    adjudication = Adjudication.objects.create(
        condition=condition, trial=trial, score=score, reason=reason.strip()[:MAX_REASON_LENGTH], by=by
    )
    earlier = Grading.objects.filter(condition=condition, trial=trial).first()
    fields = {
        "score": score,
        "score_raw": f"{score:.15g}",
        "parse_ok": True,
        "reasoning": adjudication.reason,
        "created_at": adjudication.at,  # A correction has the time of the decision that counts.
    }
    with allow_superseding():
        Grading.objects.update_or_create(condition=condition, trial=trial, defaults=fields)
    previous = "" if earlier is None else f"{earlier.score:g}"
    record_changes([(trial.run.experiment, previous, f"trial {trial.pk}: {score:g}")], by=by,
                   reason=adjudication.reason[:500], aspect="gradings")  # fmt: skip
    return adjudication
