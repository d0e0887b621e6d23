"""The units with the largest disagreements: pages of them by cursor, and the neighbours of one unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from django.db import connection

from grading_app.comparison.query import Question
from grading_app.comparison.unit_counts import given_by, rows
from grading_app.models import CachedAggregate

By = Literal["range", "variance"]
PAGE = 25

# The range of whole numbers is a whole number. Both measures are rounded, so that a cursor in an address finds its row
# again.
MEASURES: dict[By, str] = {
    "range": "round((max(given.value) - min(given.value))::numeric, 6)::float8",
    "variance": "round(var_pop(given.value)::numeric, 6)::float8",
}
PARTED = "FROM given JOIN scope ON scope.id = given.unit GROUP BY given.unit HAVING max(given.value) > min(given.value)"
# Sizes are negated. In ascending order, as an index is read, the largest come first and then units by their key.
PLACES = {by: f"row_number() OVER (ORDER BY -{size}, given.unit)" for by, size in MEASURES.items()}
WORKED_OUT = {
    by: f"splits AS MATERIALIZED (SELECT given.unit, -{size} AS minus, count(*) AS n, {PLACES[by]} AS place {PARTED})"
    for by, size in MEASURES.items()
}
STORED: dict[By, str] = {
    by: f"""splits AS NOT MATERIALIZED (SELECT unit, minus_{by} AS minus, n, place_by_{by} AS place
        FROM grading_app_split WHERE aggregate_id = %(aggregate)s)"""  # noqa: S608
    for by in MEASURES
}
KEEP = f"""INSERT INTO grading_app_split
        (aggregate_id, unit, n, minus_range, minus_variance, place_by_range, place_by_variance)
    SELECT %(aggregate)s, given.unit, count(*), -{MEASURES["range"]}, -{MEASURES["variance"]},
        {PLACES["range"]}, {PLACES["variance"]} {PARTED}"""


@dataclass(frozen=True, slots=True)
class Split:
    """One unit on which raters differ. size: by the requested measure. n: the number of its raters."""

    unit: int
    size: float
    n: int

    @property
    def cursor(self) -> str:
        return f"{self.size!r}_{self.unit}"


@dataclass(frozen=True, slots=True)
class Page:
    splits: list[Split]
    after: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of one unit among the splits, from 1, and its neighbours. None at the ends, or without a split."""

    split: Split | None
    place: int | None
    of: int
    previous: int | None
    next: int | None


def keep(aggregate: CachedAggregate, question: Question) -> int:
    """Replace the stored splits of an aggregate, within the caller's transaction. Return their number."""
    given, chosen = given_by(question)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM grading_app_split WHERE aggregate_id = %s", [aggregate.pk])
        cursor.execute(f"WITH {given} {KEEP}", {**chosen, "aggregate": aggregate.pk})
        return int(cursor.rowcount)


def count(question: Question) -> int:
    """Return the number of splits."""
    statement, chosen = _splits(question, "range", None)
    return int(rows(f"{statement} SELECT count(*) FROM splits", chosen)[0][0])  # noqa: S608 - the text above


def _splits(question: Question, by: By, aggregate: CachedAggregate | None) -> tuple[str, dict[str, Any]]:
    """Return SQL for `splits` (unit, minus, n), with its parameters: from the stored rows, or computed."""
    if aggregate is not None:
        return f"WITH {STORED[by]}", {"aggregate": aggregate.pk}
    given, chosen = given_by(question)
    return f"WITH {given}, {WORKED_OUT[by]}", chosen


def find(
    question: Question, *, by: By = "range", after: str = "", before: str = "", aggregate: CachedAggregate | None = None
) -> Page:
    """Return the splits beyond a cursor, largest first, then by unit.

    Read the stored splits of `aggregate` if given.
    """
    statement, chosen = _splits(question, by, aggregate)
    edge = read_cursor(before or after)
    beyond = "" if edge is None else " WHERE (minus, unit) > (%(minus)s, %(unit)s::bigint)"
    order = "minus, unit"
    if before and edge is not None:
        beyond, order = beyond.replace(">", "<"), "minus DESC, unit DESC"
    size, unit = edge or (0.0, None)
    found = rows(
        f"{statement} SELECT unit, -minus, n FROM splits{beyond} ORDER BY {order} LIMIT %(limit)s",  # noqa: S608
        {**chosen, "minus": -size, "unit": unit, "limit": PAGE + 1},
    )
    splits = [Split(*row) for row in found]
    return _page(splits, backwards=bool(before and edge), entered=edge is not None)


def _page(splits: list[Split], *, backwards: bool, entered: bool) -> Page:
    more, shown = len(splits) > PAGE, splits[:PAGE]
    if backwards:
        shown = shown[::-1]
    if not shown:
        return Page([])
    onwards = shown[-1].cursor if more or backwards else ""
    back = shown[0].cursor if (more if backwards else entered) else ""
    return Page(shown, after=onwards, before=back)


NEIGHBOURS = """SELECT here.unit, -here.minus, here.n, here.place,
        coalesce(%(of)s::bigint, (SELECT count(*) FROM splits)),
        (SELECT unit FROM splits WHERE (minus, unit) < (here.minus, here.unit) ORDER BY minus DESC, unit DESC LIMIT 1),
        (SELECT unit FROM splits WHERE (minus, unit) > (here.minus, here.unit) ORDER BY minus, unit LIMIT 1)
    FROM splits AS here WHERE here.unit = %(unit)s"""


def place_of(question: Question, unit: int, by: By = "range", aggregate: CachedAggregate | None = None) -> Place:
    """Return the position of this unit in the order of `find`."""
    statement, chosen = _splits(question, by, aggregate)
    of = aggregate.value if aggregate else None  # The stored number saves a count of up to a million rows.
    found = rows(f"{statement} {NEIGHBOURS}", {**chosen, "unit": unit, "of": of})
    if not found:
        return Place(None, None, 0, None, None)
    unit, size, n, *rest = found[0]
    return Place(Split(unit, size, n), *rest)


def read_cursor(text: str) -> tuple[float, int] | None:
    """Return the size and the unit at which a page ended; None if the text is not a cursor."""
    size, _, unit = text.partition("_")
    try:
        return (float(size), int(unit)) if len(text) < 60 else None
    except ValueError:
        return None
