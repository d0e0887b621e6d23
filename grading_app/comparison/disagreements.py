"""The units with the largest disagreements: pages of them by cursor, and the neighbours of one unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from django.db import connection
from django.db.models import Exists, F, Max, Min, OuterRef, Q

from evalsite.lib.sql import fetch_rows
from grading_app.comparison.rating_selection import RatingSelection
from grading_app.comparison.unit_counts import build_ratings_sql
from grading_app.models import CachedAggregate, Grading, Rating

SpreadMeasure = Literal["range", "variance"]
PAGE = 25

# The range of whole numbers is a whole number. Both measures are rounded, so that a cursor in an address finds its row
# again.
SPREADS: dict[SpreadMeasure, str] = {
    "range": "round((max(scaled.value) - min(scaled.value))::numeric, 6)::float8",
    "variance": "round(var_pop(scaled.value)::numeric, 6)::float8",
}
DIFFERING_UNITS = (
    "FROM scaled JOIN scope ON scope.id = scaled.unit GROUP BY scaled.unit HAVING max(scaled.value) > min(scaled.value)"
)
# Sizes are negated. In ascending order, as an index is read, the largest come first and then units by their key.
POSITIONS = {by: f"row_number() OVER (ORDER BY -{size}, scaled.unit)" for by, size in SPREADS.items()}
COMPUTED = {
    by: f"""ranked AS MATERIALIZED (
        SELECT scaled.unit, -{size} AS minus, count(*) AS n, {POSITIONS[by]} AS place {DIFFERING_UNITS})"""
    for by, size in SPREADS.items()
}
STORED: dict[SpreadMeasure, str] = {
    by: f"""ranked AS NOT MATERIALIZED (SELECT unit, minus_{by} AS minus, n, place_by_{by} AS place
        FROM grading_app_storeddisagreement WHERE aggregate_id = %(aggregate)s)"""  # noqa: S608
    for by in SPREADS
}
INSERT = f"""INSERT INTO grading_app_storeddisagreement
        (aggregate_id, unit, n, minus_range, minus_variance, place_by_range, place_by_variance)
    SELECT %(aggregate)s, scaled.unit, count(*), -{SPREADS["range"]}, -{SPREADS["variance"]},
        {POSITIONS["range"]}, {POSITIONS["variance"]} {DIFFERING_UNITS}"""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One unit on which raters differ. size: by the requested measure. n: the number of its raters."""

    unit: int
    size: float
    n: int

    @property
    def cursor(self) -> str:
        return f"{self.size!r}_{self.unit}"


@dataclass(frozen=True, slots=True)
class DisagreementPage:
    """One page of disagreements, with the cursors of the pages after and before it; empty at the ends."""

    disagreements: list[Disagreement]
    after: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class DisagreementPosition:
    """The position of a unit in the order of disagreements, and its neighbours. None at the ends, or if it is none."""

    disagreement: Disagreement | None
    rank: int | None
    total: int
    previous: int | None
    next: int | None


def store_disagreements(aggregate: CachedAggregate, selection: RatingSelection) -> int:
    """Replace the stored disagreements of an aggregate, within the caller's transaction. Return their number."""
    ratings, parameters = build_ratings_sql(selection)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM grading_app_storeddisagreement WHERE aggregate_id = %s", [aggregate.pk])
        cursor.execute(f"WITH {ratings} {INSERT}", {**parameters, "aggregate": aggregate.pk})
        return int(cursor.rowcount)


def count_disagreements(selection: RatingSelection) -> int:
    """Return the number of units on which the raters differ."""
    statement, parameters = _select_disagreements(selection, "range", None)
    return int(fetch_rows(f"{statement} SELECT count(*) FROM ranked", parameters)[0][0])  # noqa: S608 - the text above


def _select_disagreements(
    selection: RatingSelection, by: SpreadMeasure, aggregate: CachedAggregate | None
) -> tuple[str, dict[str, Any]]:
    """Return SQL for `ranked` (unit, minus, n, place), with its parameters: from the stored rows, or computed."""
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
    """Return the page of disagreements beyond a cursor, largest first, then by unit.

    Read the stored disagreements of `aggregate` if scaled.
    """
    statement, parameters = _select_disagreements(selection, by, aggregate)
    edge = read_cursor(before or after)
    beyond = "" if edge is None else " WHERE (minus, unit) > (%(minus)s, %(unit)s::bigint)"
    order = "minus, unit"
    if before and edge is not None:
        beyond, order = beyond.replace(">", "<"), "minus DESC, unit DESC"
    size, unit = edge or (0.0, None)
    rows = fetch_rows(
        f"{statement} SELECT unit, -minus, n FROM ranked{beyond} ORDER BY {order} LIMIT %(limit)s",  # noqa: S608
        {**parameters, "minus": -size, "unit": unit, "limit": PAGE + 1},
    )
    shown = [Disagreement(*row) for row in rows]
    return _make_page(shown, backwards=bool(before and edge), has_cursor=edge is not None)


def _make_page(found: list[Disagreement], *, backwards: bool, has_cursor: bool) -> DisagreementPage:
    more, shown = len(found) > PAGE, found[:PAGE]
    if backwards:
        shown = shown[::-1]
    if not shown:
        return DisagreementPage([])
    after = shown[-1].cursor if more or backwards else ""
    before = shown[0].cursor if (more if backwards else has_cursor) else ""
    return DisagreementPage(shown, after=after, before=before)


NEIGHBOURS = """SELECT here.unit, -here.minus, here.n, here.place,
        coalesce(%(total)s::bigint, (SELECT count(*) FROM ranked)),
        (SELECT unit FROM ranked WHERE (minus, unit) < (here.minus, here.unit) ORDER BY minus DESC, unit DESC LIMIT 1),
        (SELECT unit FROM ranked WHERE (minus, unit) > (here.minus, here.unit) ORDER BY minus, unit LIMIT 1)
    FROM ranked AS here WHERE here.unit = %(unit)s"""


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


def read_cursor(text: str) -> tuple[float, int] | None:
    """Return the size and the unit at which a page ended; None if the text is not a cursor."""
    size, _, unit = text.partition("_")
    try:
        return (float(size), int(unit)) if len(text) < 60 else None
    except ValueError:
        return None


def select_disagreement() -> Q:
    """Return the answers that two raters scored differently: judges and people by one rubric, or people of one queue.

    Rules, panels and adjudications are no raters. Scores by different rubrics have different scales.
    """
    gradings = Grading.objects.filter(
        trial=OuterRef("pk"), condition__kind__in=("judge", "person"), score__isnull=False
    ).order_by()
    ratings = Rating.objects.filter(
        trial=OuterRef("pk"), rival=None, kind=Rating.Kind.ITEM, value__isnull=False, assignment__excluded_at=None
    ).order_by()
    by_rubric = gradings.values("condition__rubric").annotate(low=Min("score"), high=Max("score"))
    by_queue = ratings.values("assignment__queue", "dimension", "criterion").annotate(
        low=Min("value"), high=Max("value")
    )
    return Q(Exists(by_rubric.filter(low__lt=F("high")))) | Q(Exists(by_queue.filter(low__lt=F("high"))))
