"""The answers of both sides to the same items, side by side, with the differences between their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models.functions import Left, Length
from django.urls import reverse

from datasets_app.models import Item
from evalsite.lib.text.diff import Piece, compare_words
from evalsite.lib.text.number_format import format_score
from grading_app.models import AnswerScore
from grading_app.results import statistic_format
from grading_app.results.comparison.condition_scores import A, B, PairedScores
from grading_app.results.comparison.condition_sides import ConditionSide
from grading_app.results.scores import Measure
from grading_app.statistics.condition_pairs import TOLERANCE
from runs_app.models import Run, Trial

MAX_LENGTH = 1_500
"""The number of characters of an answer that the page shows and compares."""
MAX_QUESTION_LENGTH = 400


@dataclass(frozen=True)
class ComparedAnswer:
    """One side's answer to an item; with repetitions, the first answer.

    mean: the mean score of all n repetitions. score: the score of this answer; None if it could not be read.
    """

    trial: int | None
    pieces: Sequence[Piece]
    length: int
    score: float | None
    mean: float
    n: int
    cost_usd: Decimal | None
    latency_s: float | None
    is_share: bool
    shown: int = MAX_LENGTH

    @property
    def is_cut(self) -> bool:
        return self.length > MAX_LENGTH

    @property
    def score_text(self) -> str:
        if self.score is None:
            return "No score"
        if self.is_share and self.score in (0, 1):
            return "Right" if self.score else "Wrong"
        return format_score(self.score)

    @property
    def mean_text(self) -> str:
        return statistic_format.format_share(self.mean) if self.is_share else statistic_format.format_number(self.mean)


@dataclass(frozen=True)
class ComparedItem:
    """An item with both answers. change: B minus A, of the means over repetitions."""

    item: Item
    question: str
    change: float
    a: ComparedAnswer
    b: ComparedAnswer
    is_same: bool

    @property
    def sides(self) -> list[tuple[str, ComparedAnswer]]:
        return [("A", self.a), ("B", self.b)]

    @property
    def address(self) -> str:
        """The address of B's answer, or of A's if B has none."""
        return reverse("trial_detail", args=[self.b.trial or self.a.trial])

    @property
    def change_text(self) -> str:
        if abs(self.change) <= TOLERANCE:
            return "Equal"
        if self.a.is_share and abs(self.change) == 1:
            return "Gained: only B is right" if self.change > 0 else "Lost: only A is right"
        text = (
            statistic_format.format_points(self.change)
            if self.a.is_share
            else statistic_format.format_number(self.change)
        )
        return f"B − A: {statistic_format.add_sign(text)}"


def load_compared_items(
    a: ConditionSide, b: ConditionSide, measures: tuple[Measure, Measure], paired: PairedScores, rows: Any
) -> list[Any]:
    """Return the items in these rows of `paired`, in this order, in a constant number of queries."""
    keys_a = [int(paired.scores.items[row]) for row in rows]
    keys_b = [int(paired.items_b[row]) for row in rows]
    questions = Item.objects.annotate(question=Left("input", MAX_QUESTION_LENGTH)).select_related("image", "dataset")
    items: dict[int, Any] = questions.defer("input", "metadata", "grading_scheme").in_bulk(keys_a)
    trials_a, trials_b = _load_first_trials(a, measures[0], keys_a), _load_first_trials(b, measures[1], keys_b)
    compared = []
    for row, key_a, key_b in zip(rows, keys_a, keys_b, strict=True):
        trial_a, trial_b = trials_a.get(key_a), trials_b.get(key_b)
        texts = (trial_a.excerpt if trial_a else "", trial_b.excerpt if trial_b else "")
        pieces = compare_words(*texts)
        compared.append(
            ComparedItem(
                items[key_a],
                items[key_a].question,
                float(paired.differences[row]),
                _make_answer(trial_a, pieces[0], paired, row, A),
                _make_answer(trial_b, pieces[1], paired, row, B),
                texts[0] == texts[1],
            )
        )
    return compared


def _load_first_trials(side: ConditionSide, measure: Measure, items: list[int]) -> dict[int, Any]:
    """Return the first answer to each item by item, with its score on the measure."""
    runs = Run.objects.filter(condition__in=side.conditions)
    runs = runs if side.wave is None else runs.filter(wave=side.wave)
    trials = Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), item__in=items, status="done")
    if measure.dimension is not None:
        trials = trials.filter(dimension=measure.dimension)
    trials = trials.annotate(excerpt=Left("answer", MAX_LENGTH), length=Length("answer")).order_by(
        "item_id", "sample_idx", "dimension_id", "pk"
    )
    fields = ("item_id", "rating", "cost_usd", "latency_ms")
    found: Iterable[Any] = trials.distinct("item_id").only(*fields)
    trials_by_item: dict[int, Any] = {trial.item_id: trial for trial in found}
    keys = [trial.pk for trial in trials_by_item.values()]
    graded = AnswerScore.objects.filter(trial__in=keys, grader_kind=measure.kind, grader_id=measure.grader)
    scores = dict(graded.values_list("trial", "score"))
    for trial in trials_by_item.values():
        trial.score = scores.get(trial.pk)
    return trials_by_item


def _make_answer(trial: Any, pieces: Sequence[Piece], paired: PairedScores, row: int, column: int) -> ComparedAnswer:
    mean, n = float(paired.scores.mean[row, column]), int(paired.scores.n[row, column])
    if trial is None:
        return ComparedAnswer(None, (), 0, None, mean, n, None, None, paired.measure.is_share)
    seconds = None if trial.latency_ms is None else trial.latency_ms / 1000
    return ComparedAnswer(
        trial.pk, pieces, trial.length, trial.score, mean, n, trial.cost_usd, seconds, paired.measure.is_share
    )
