"""All answers to one item: by experiment and condition, with their ratings, scores and spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Avg, Count, F, Q, StdDev, Window
from django.db.models.functions import Left, RowNumber

from datasets_app.models import Item
from grading_app.models import GradeCondition, Grading
from runs_app.models import Condition, Dimension, Experiment, Run, Trial

PER_PAGE = 25
MAX_ANSWERS = 3
"""The maximum number of answers of one condition on the page. A link leads to the others."""
EXCERPT_LENGTH = 120
CELL_FIELDS = ("run__experiment", "run__condition", "dimension")


@dataclass(slots=True)
class GraderScores:
    """The scores that one grader gave to the answers of a cell. sd: None for fewer than two scores."""

    grader: GradeCondition
    n: int
    mean: float
    sd: float | None


@dataclass(slots=True)
class ItemAnswers:
    """The answers of one condition to the item, on one dimension, over waves and repetitions.

    n: trials. done: trials with an answer. rated: answers with a readable rating. mean, sd: of these ratings; None
    without ratings.
    """

    experiment: Experiment
    condition: Condition
    dimension: Dimension | None
    n: int
    done: int
    rated: int
    mean: float | None
    sd: float | None
    scores: list[GraderScores] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


def get_answer_page(item: Item, user: Any, number: Any) -> tuple[Page[Any], list[ItemAnswers]]:
    """Return one page of the answers to an item, by condition, in experiments that the user may see.

    The number of queries is constant. The unique index of trials finds them by (run, item).
    """
    experiments = Experiment.objects.visible_to(user).filter(dataset=item.dataset_id)
    runs = list(Run.objects.answering(experiments).values_list("pk", flat=True))
    trials = Trial.objects.filter(run__in=runs, item=item).order_by()
    cells = (
        trials.values(*CELL_FIELDS)
        .annotate(
            n=Count("pk"),
            done=Count("pk", filter=Q(status="done")),
            rated=Count("rating"),
            mean=Avg("rating"),
            sd=StdDev("rating", sample=True),
        )
        .order_by("run__experiment__slug", "run__condition", "dimension")
    )
    page = Paginator(cells, PER_PAGE).get_page(number)
    return page, _describe_cells(trials, list(page.object_list))


def _describe_cells(trials: Any, cells: Sequence[dict[str, Any]]) -> list[ItemAnswers]:
    conditions = Condition.objects.select_related("model", "prompt", "sampler").in_bulk(
        [cell["run__condition"] for cell in cells]
    )
    experiments = Experiment.objects.in_bulk([cell["run__experiment"] for cell in cells])
    dimensions = Dimension.objects.in_bulk([cell["dimension"] for cell in cells if cell["dimension"]])
    item_answers = {
        (cell["run__condition"], cell["dimension"]): ItemAnswers(
            experiments[cell["run__experiment"]], conditions[cell["run__condition"]],
            dimensions.get(cell["dimension"]), *(cell[name] for name in ("n", "done", "rated", "mean", "sd"))
        )
        for cell in cells
    }  # fmt: skip
    page_trials = trials.filter(run__condition__in=conditions)
    rank = Window(
        RowNumber(),
        partition_by=[F("run__condition"), F("dimension")],
        order_by=["run__wave__number", "sample_idx", "pk"],
    )
    first_trials = page_trials.annotate(rank=rank, excerpt=Left("answer", EXCERPT_LENGTH)).filter(rank__lte=MAX_ANSWERS)
    with_fields = first_trials.select_related("run__wave").only(
        "item_id", "status", "rating", "sample_idx", "error_class", "parse_error", "dimension_id", "run__condition_id",
        "run__experiment_id", "run__wave__number", "run__wave__label",
    )  # fmt: skip
    for trial in with_fields.order_by("run__wave__number", "sample_idx", "pk"):
        if (cell := item_answers.get((trial.run.condition_id, trial.dimension_id))) is not None:
            cell.answers.append(trial)
    for condition, dimension, scores in _load_scores(page_trials):
        if (cell := item_answers.get((condition, dimension))) is not None:
            cell.scores.append(scores)
    return list(item_answers.values())


def _load_scores(trials: Any) -> list[tuple[int, int | None, GraderScores]]:
    sums: list[Any] = list(
        Grading.objects.filter(trial__in=trials.values("pk"))
        .order_by("condition")
        .values("condition", "trial__run__condition", "trial__dimension")
        .annotate(n=Count("score"), mean=Avg("score"), sd=StdDev("score", sample=True))
        .filter(n__gt=0)
    )
    graders = GradeCondition.objects.select_related("grader", "rubric", "panel").in_bulk(
        {row["condition"] for row in sums}
    )
    return [
        (
            row["trial__run__condition"],
            row["trial__dimension"],
            GraderScores(graders[row["condition"]], row["n"], row["mean"], row["sd"]),
        )
        for row in sums
    ]
