"""The draw of a queue's answers, made once at its first opening, with a stored seed. No model is preferred.

Each condition gives the same number of answers per drawn item, so the raters' means compare conditions.
In comparisons, every two conditions meet on each drawn item.
Blank answers are left out, because raters cannot rate them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

from grading_app.models import RatedAnswer, Rating, RatingQueue
from runs_app.models import Trial

MOST_ANSWERS = 20_000

Cell = tuple[int, int, int | None]
"""An item, a condition and the dimension of the answer."""
Unit = tuple[int, int | None, int]
"""An answer, the answer that it is compared with, and their item."""


class AnswerDrawError(ValueError):
    """A design with nothing or too much to draw; the message says which."""


def draw_answers(queue: RatingQueue) -> list[RatedAnswer]:
    """Save and return the answers of this queue.

    Practice and check items get one answer each. The other items get the number that the sample sets.
    """
    items = list(queue.dataset.items.active().order_by("position", "pk").values_list("pk", "key"))
    checks = [pk for pk, key in items if key in queue.attention_checks]
    practice = [pk for pk, _ in items if pk not in set(checks)][: queue.practice_items]
    apart = {**dict.fromkeys(practice, Rating.Kind.PRACTICE), **dict.fromkeys(checks, Rating.Kind.CHECK)}
    firsts = _draw_first_units(queue, list(apart))
    if unanswered := len(set(apart) - set(firsts)):
        what = "two answers to compare" if queue.rates_pairs else "answer"
        raise AnswerDrawError(f"{unanswered} items of practice or attention checks have no {what}")
    answered = set(list_answers(queue).values_list("item", flat=True).distinct())
    if queue.only_items:
        answered &= {pk for pk, key in items if key in set(queue.only_items)}
    drawn = draw_keys(sorted(answered - set(apart)), queue.sample_items, seed=queue.sample_seed)
    shown = _draw_units(queue, drawn, queue.answers_each)
    if not 0 < len(shown) <= MOST_ANSWERS:
        raise AnswerDrawError(_explain_number(len(shown), in_pairs=queue.rates_pairs))
    rows = [(unit, Rating.Kind.ITEM) for unit in shown]
    rows += [(unit, apart[item]) for item, unit in firsts.items()]
    return RatedAnswer.objects.bulk_create(
        RatedAnswer(queue=queue, trial_id=trial, rival_id=rival, item_id=item, kind=kind)
        for (trial, rival, item), kind in rows
    )


def _draw_units(queue: RatingQueue, items: Sequence[int], each: int) -> list[Unit]:
    """Return the units to show for these items: answers, or pairs of answers for comparisons."""
    cells = _group_by_cell(list_answers(queue).filter(item__in=items))
    if queue.rates_pairs:
        return draw_pairs(cells, each, seed=queue.sample_seed)
    return [(trial, None, item) for trial, item in draw_single_answers(cells, each, seed=queue.sample_seed)]


def _draw_first_units(queue: RatingQueue, items: Sequence[int]) -> dict[int, Unit]:
    """Return the first unit of each item, by item. Items without a unit are missing."""
    firsts: dict[int, Unit] = {}
    for unit in sorted(_draw_units(queue, items, MOST_ANSWERS), key=lambda unit: (unit[0], unit[1] or 0)):
        firsts.setdefault(unit[2], unit)
    return firsts


def list_answers(queue: RatingQueue) -> Any:
    """Return all stored answers that the queue could show."""
    found = Trial.objects.generating().with_text().filter(run__experiment=queue.experiment, item__excluded=False)
    conditions = list(queue.conditions.values_list("pk", flat=True))
    found = found.filter(run__condition__in=conditions) if conditions else found
    return found.order_by("pk")


def draw_keys(keys: Sequence[int], n: int | None, *, seed: int) -> list[int]:
    """Return n random keys in order, or all keys. The order of `keys` does not matter."""
    ordered = sorted(keys)
    if n is None or n >= len(ordered):
        return ordered
    return sorted(Random(seed).sample(ordered, n))  # noqa: S311 - a sample, not a secret.


def draw_single_answers(
    cells: Mapping[Cell, Sequence[tuple[int, int]]], each: int, *, seed: int
) -> list[tuple[int, int]]:
    """Return at most `each` random (trial, item) pairs of every cell. Each cell has its own seed."""
    found: list[tuple[int, int]] = []
    for cell in sorted(cells, key=str):
        rng = Random(f"{seed}:{cell}")  # noqa: S311 - as above.
        found += sorted(rng.sample(sorted(cells[cell]), min(each, len(cells[cell]))))
    return found


def draw_pairs(cells: Mapping[Cell, Sequence[tuple[int, int]]], each: int, *, seed: int) -> list[Unit]:
    """Return at most `each` random answer pairs for every two conditions that answered the same question."""
    by_item: dict[tuple[int, int | None], list[Cell]] = {}
    for cell in sorted(cells, key=str):
        by_item.setdefault((cell[0], cell[2]), []).append(cell)
    drawn = {cell: draw_single_answers({cell: cells[cell]}, each, seed=seed) for cell in cells}
    return [
        (trial, rival, item)
        for (item, _), alike in by_item.items()
        for one, other in combinations(alike, 2)
        for (trial, _), (rival, _) in zip(drawn[one], drawn[other], strict=False)
    ]


def _group_by_cell(trials: Any) -> dict[Cell, list[tuple[int, int]]]:
    cells: dict[Cell, list[tuple[int, int]]] = {}
    for pk, item, condition, dimension in trials.values_list("pk", "item", "run__condition", "dimension"):
        cells.setdefault((item, condition, dimension), []).append((pk, item))
    return cells


def _explain_number(n: int, *, in_pairs: bool) -> str:
    if n:
        return f"{n:,} answers are more than {MOST_ANSWERS:,}; draw fewer items"
    if in_pairs:
        return "no item beside practice has answers of two conditions to compare"
    return "there is no answer to rate beside practice and attention checks"
