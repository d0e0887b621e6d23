"""Where raters part the most: units in the order of their split, page by page by key, and the neighbours of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import Sum

from grading_app.comparing.asking import Question
from grading_app.comparing.frames import given_by, rows

By = Literal["range", "variance"]
PAGE = 25
MOST_ANSWERS = 150_000
"""Every unit's split is worked out before the largest is known: beyond this many answers one has to choose a part."""

# The first keeps whole numbers whole; both are rounded so that a cursor in an address meets its row again.
MEASURES: dict[By, str] = {
    "range": "round((max(given.value) - min(given.value))::numeric, 6)",
    "variance": "round(var_pop(given.value)::numeric, 6)",
}


@dataclass(frozen=True, slots=True)
class Split:
    """One unit on which raters differ. size: by the measure that was asked for; n: how many rated it."""

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
    """Where one unit stands among the splits, from 1, and its neighbours; None at the ends, or without a split."""

    split: Split | None
    place: int | None
    of: int
    previous: int | None
    next: int | None


def _splits(question: Question, by: By) -> tuple[str, dict[str, Any]]:
    given, chosen = given_by(question)
    statement = f"""WITH {given}, splits AS (
        SELECT given.unit, {MEASURES[by]}::float8 AS size, count(*) AS n FROM given JOIN scope ON scope.id = given.unit
        GROUP BY given.unit HAVING max(given.value) > min(given.value))"""  # noqa: S608
    return statement, chosen


def find(question: Question, *, by: By = "range", after: str = "", before: str = "") -> Page:
    """The splits beyond a cursor, largest first; those of equal size by their unit."""
    statement, chosen = _splits(question, by)
    edge = read_cursor(before or after)
    beyond = "" if edge is None else " WHERE (size, -unit) < (%(size)s, -%(unit)s::bigint)"
    order = "size DESC, unit"
    if before and edge is not None:
        beyond, order = beyond.replace("<", ">"), "size, unit DESC"
    size, unit = edge or (None, None)
    found = rows(
        f"{statement} SELECT unit, size, n FROM splits{beyond} ORDER BY {order} LIMIT %(limit)s",  # noqa: S608
        {**chosen, "size": size, "unit": unit, "limit": PAGE + 1},
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


def place_of(question: Question, unit: int, by: By = "range") -> Place:
    """Where this unit stands, in the order of `find`."""
    statement, chosen = _splits(question, by)
    ordered = "OVER (ORDER BY size DESC, unit)"
    found = rows(
        f"""{statement}, placed AS (SELECT unit, size, n, row_number() {ordered} AS place, count(*) OVER () AS total,
            lag(unit) {ordered} AS previous, lead(unit) {ordered} AS next FROM splits)
        SELECT unit, size, n, place, total, previous, next FROM placed WHERE unit = %(unit)s""",  # noqa: S608
        {**chosen, "unit": unit},
    )
    if not found:
        return Place(None, None, 0, None, None)
    unit, size, n, *rest = found[0]
    return Place(Split(unit, size, n), *rest)


def read_cursor(text: str) -> tuple[float, int] | None:
    """The size and the unit that a page ended with; None for what is no cursor."""
    size, _, unit = text.partition("_")
    try:
        return (float(size), int(unit)) if len(text) < 60 else None
    except ValueError:
        return None


def is_too_much(question: Question) -> bool:
    """Whether there are more answers than can be put in order while somebody waits; known from counters.

    Of items that people rated alone there are never so many.
    """
    if not question.on_answers and not any(rater.kind == "model" for rater in question.chosen):
        return False
    runs = question.experiment.runs.generating()
    named = {"wave": question.narrowed.get("wave"), "condition": question.narrowed.get("condition")}
    chosen = runs.filter(**{name: key for name, key in named.items() if key})
    return (chosen.aggregate(n=Sum("n_done"))["n"] or 0) > MOST_ANSWERS
