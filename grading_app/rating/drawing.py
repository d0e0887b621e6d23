"""Which answers a queue asks about: drawn once, when it first opens, with its seed; no model is preferred.

Of each drawn item every condition gives the same number of its answers, so that the raters' means compare conditions.
Blank answers are left out: there is nothing to rate in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from grading_app.models import RatedAnswer, Rating, RatingQueue
from runs_app.models import Trial

MOST_ANSWERS = 20_000

Cell = tuple[int, int, int | None]
"""An item, a condition, and the dimension that the answer itself is on."""


class DrawingError(ValueError):
    """The design leaves nothing to draw, or too much; the message says what."""


def draw_answers(queue: RatingQueue) -> list[RatedAnswer]:
    """The answers of this queue, saved: of practice and check items one each, of the others as its sample says."""
    items = list(queue.dataset.items.active().order_by("position", "pk").values_list("pk", "key"))
    checks = [pk for pk, key in items if key in queue.attention_checks]
    practice = [pk for pk, _ in items if pk not in set(checks)][: queue.practice_items]
    apart = {**dict.fromkeys(practice, Rating.Kind.PRACTICE), **dict.fromkeys(checks, Rating.Kind.CHECK)}
    answered = set(answers(queue).values_list("item", flat=True).distinct())
    unanswered = [pk for pk in apart if pk not in answered]
    if unanswered:
        raise DrawingError(f"{len(unanswered)} items of practice or attention checks have no answer")
    open_items = sorted(answered - set(apart))
    drawn = sampled(open_items, queue.sample_items, seed=queue.sample_seed)
    shown = chosen(_cells(answers(queue).filter(item__in=drawn)), queue.answers_each, seed=queue.sample_seed)
    if not 0 < len(shown) <= MOST_ANSWERS:
        raise DrawingError(_too_few_or_many(len(shown)))
    rows = [(trial, item, Rating.Kind.ITEM) for trial, item in shown]
    firsts = _first_of(answers(queue).filter(item__in=apart))
    rows += [(trial, item, apart[item]) for trial, item in firsts]
    made = [RatedAnswer(queue=queue, trial_id=trial, item_id=item, kind=kind) for trial, item, kind in rows]
    return RatedAnswer.objects.bulk_create(made)


def answers(queue: RatingQueue) -> Any:
    """Every stored answer that could be asked about."""
    found = Trial.objects.generating().with_text().filter(run__experiment=queue.experiment, item__excluded=False)
    conditions = list(queue.conditions.values_list("pk", flat=True))
    found = found.filter(run__condition__in=conditions) if conditions else found
    return found.order_by("pk")


def sampled(keys: Sequence[int], n: int | None, *, seed: int) -> list[int]:
    """n of the keys at random, or all; the order in which they came does not matter."""
    ordered = sorted(keys)
    if n is None or n >= len(ordered):
        return ordered
    return sorted(Random(seed).sample(ordered, n))  # noqa: S311 - a sample, not a secret.


def chosen(cells: Mapping[Cell, Sequence[tuple[int, int]]], each: int, *, seed: int) -> list[tuple[int, int]]:
    """At most `each` of the (trial, item) of every cell, drawn at random; each cell by a seed of its own."""
    found: list[tuple[int, int]] = []
    for cell in sorted(cells, key=str):
        rng = Random(f"{seed}:{cell}")  # noqa: S311 - as above.
        found += sorted(rng.sample(sorted(cells[cell]), min(each, len(cells[cell]))))
    return found


def _cells(trials: Any) -> dict[Cell, list[tuple[int, int]]]:
    cells: dict[Cell, list[tuple[int, int]]] = {}
    for pk, item, condition, dimension in trials.values_list("pk", "item", "run__condition", "dimension"):
        cells.setdefault((item, condition, dimension), []).append((pk, item))
    return cells


def _first_of(trials: Any) -> Iterable[tuple[int, int]]:
    """The first answer to each item."""
    firsts: dict[int, int] = {}
    for pk, item in trials.values_list("pk", "item"):
        firsts.setdefault(item, pk)
    return [(trial, item) for item, trial in firsts.items()]


def _too_few_or_many(n: int) -> str:
    if n:
        return f"{n:,} answers are more than {MOST_ANSWERS:,}; draw fewer items"
    return "there is no answer to rate beside practice and attention checks"
