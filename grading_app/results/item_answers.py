"""The answers to one item: in all experiments with their ratings and scores, and the transcript in one experiment.

The transcript shows what each condition was asked, what it answered, and all verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Avg, Count, F, Func, IntegerField, JSONField, Q, StdDev, Window
from django.db.models.functions import Left, RowNumber

from datasets_app.models import Item
from evalsite.lib.sql import OctetLength
from evalsite.lib.text.number_format import MISSING
from grading_app.models import GradeCondition, Grading, Preference, Rating, RatingQueue
from runs_app.models import Condition, Dimension, Experiment, Run, Trial
from runs_app.prompt_preview import PreviewTurn, Turns, rebuild_turns

PER_PAGE = 25
MAX_ANSWERS = 3
"""The maximum number of answers of one condition on the page. A link leads to the others."""
EXCERPT_LENGTH = 120
"""The number of characters of an answer in a cell or an overview."""
CELL_FIELDS = ("run__experiment", "run__condition", "dimension")
TRANSCRIPTS_PER_PAGE = 12
"""The number of conditions on a page; with dimensions, of pairs of a condition and a dimension."""
MAX_TRANSCRIPT_ANSWERS = 2
"""The number of answers of one condition on the page. A link leads to the others."""
MAX_CHARACTERS = 4000
"""The number of characters of one text on the page. A link leads to the whole text."""
MAX_MESSAGES = 60
"""The number of messages of an imported conversation on the page."""
MAX_PREFERENCES = 100


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


class ShortMessages(Func):
    """The first messages of a stored conversation, with long texts cut. Sizes are those of the whole texts, in bytes.

    The database cuts them, so that a long conversation is neither sent nor parsed.
    """

    output_field = JSONField()
    template = """(SELECT jsonb_agg(message
            || jsonb_build_object('content', left(content, %(characters)s), 'size', octet_length(content))
            || CASE WHEN reasoning IS NULL THEN '{}' ELSE jsonb_build_object('reasoning',
                left(reasoning, %(characters)s), 'reasoning_size', octet_length(reasoning)) END
            ORDER BY position)
        FROM (SELECT position, message - 'content' - 'reasoning' AS message, message->>'content' AS content,
                message->>'reasoning' AS reasoning
            FROM jsonb_array_elements(%(expressions)s) WITH ORDINALITY AS stored(message, position)
            WHERE position <= %(messages)s OFFSET 0) AS texts)"""

    def __init__(self, expression: str) -> None:
        super().__init__(expression, characters=MAX_CHARACTERS, messages=MAX_MESSAGES)


@dataclass(slots=True)
class TranscriptAnswer:
    """One trial with its verdicts. people: mean and number of people's ratings of this answer, by dimension.

    steps: an imported conversation after its first messages: the model's turns, calls of tools and their results.
    """

    trial: Any
    steps: list[tuple[int, PreviewTurn]] = field(default_factory=list)
    gradings: list[Any] = field(default_factory=list)
    people: list[tuple[str, float, int]] = field(default_factory=list)


@dataclass(slots=True)
class TranscriptCell:
    """One condition on one dimension. n: its trials of the item, of which `answers` has the first ones."""

    condition: int
    dimension: Any
    label: str
    n: int
    answers: list[TranscriptAnswer] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return f"c{self.condition}-{self.dimension.pk}" if self.dimension else f"c{self.condition}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that the first answers of several cells got alike. `trial` is one of these answers."""

    turns: Turns
    trial: Any
    cells: list[TranscriptCell]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One page of a transcript. people: mean and number of people's ratings of the item itself, by dimension."""

    page: Page[Any]
    conversations: list[Conversation]
    people: list[tuple[str, float, int]]
    preferences: list[Preference]

    @property
    def cells(self) -> list[TranscriptCell]:
        return [cell for conversation in self.conversations for cell in conversation.cells]

    @property
    def graders(self) -> dict[int, str]:
        """The labels of all grade conditions with a verdict on the page, by key."""
        gradings = (row for cell in self.cells for answer in cell.answers for row in answer.gradings)
        return dict(sorted({row.condition_id: row.condition.label for row in gradings}.items()))

    @property
    def overview(self) -> list[tuple[TranscriptCell, list[tuple[str, str]], str]]:
        """Each cell with pairs of a grader's label and its verdicts on the shown answers, and the first answer."""
        rows = []
        for cell in self.cells:
            texts: dict[int, list[str]] = {}
            for answer in cell.answers:
                for row in answer.gradings:
                    texts.setdefault(row.condition_id, []).append(row.score_text)
            verdicts = [(label, ", ".join(texts.get(key, [])) or MISSING) for key, label in self.graders.items()]
            first = next((answer.trial for answer in cell.answers), None)
            rows.append((cell, verdicts, first.answer[:EXCERPT_LENGTH] or first.error_class if first else ""))
        return rows


def load_transcript(
    experiment: Experiment, item: Item, labels: Mapping[int, str], user: Any, number: Any
) -> Transcript:
    """Return a page of the transcript. Neither queries nor loaded bytes depend on the length of the texts.

    labels: names of the conditions, in their order on the page. Fetch the item with its image.
    """
    runs = list(experiment.answer_runs.values_list("pk", flat=True))
    trials = Trial.objects.filter(run__in=runs, item=item).order_by()
    counts: Any = trials.values("run__condition", "run__condition__prompt", "dimension").annotate(n=Count("pk"))
    places = {key: place for place, key in enumerate(labels)}
    found = [row for row in counts if row["run__condition"] in places]
    found.sort(
        key=lambda row: (row["dimension"] or 0, row["run__condition__prompt"] or 0, places[row["run__condition"]])
    )
    page = Paginator(found, TRANSCRIPTS_PER_PAGE).get_page(number)
    dimensions = {row.pk: row for row in experiment.dimensions.all()}
    cells = {
        (row["run__condition"], row["dimension"]): TranscriptCell(
            row["run__condition"], dimensions.get(row["dimension"]), labels[row["run__condition"]], row["n"]
        )
        for row in page.object_list
    }
    answers = {}
    for trial in _load_first_trials(trials.filter(run__condition__in={key for key, _ in cells})):
        cell = cells.get((trial.run.condition_id, trial.dimension_id))
        if cell is None:
            continue
        trial.item, trial.run.experiment = item, experiment
        trial.answer, trial.reasoning, trial.messages = trial.answer_start, trial.reasoning_start, trial.short_messages
        answers[trial.pk] = TranscriptAnswer(trial)
        cell.answers.append(answers[trial.pk])
    gradings: Any = Grading.objects.filter(trial__in=answers).annotate(
        reasoning_start=Left("reasoning", MAX_CHARACTERS), raw_start=Left("score_raw", MAX_CHARACTERS)
    )
    for grading in (
        gradings.select_related("condition__grader", "condition__rubric", "condition__panel")
        .defer("reasoning", "score_raw")
        .order_by("condition", "pk")
    ):
        grading.reasoning, grading.score_raw = grading.reasoning_start, grading.raw_start
        answers[grading.trial_id].gradings.append(grading)
    people: list[tuple[str, float, int]] = []
    ratings = Rating.objects.counted().filter(rival=None, dimension__isnull=False, item=item)
    is_here = Q(trial__in=answers) | Q(trial=None, assignment__queue__in=RatingQueue.objects.visible_to(user))
    means = ratings.filter(is_here).values("trial", "dimension__name").annotate(mean=Avg("value"), n=Count("pk"))
    for row in means.order_by("trial", "dimension__name"):
        entry = (row["dimension__name"], row["mean"], row["n"])
        (answers[row["trial"]].people if row["trial"] else people).append(entry)
    between = Preference.objects.filter(trial_a__in=answers, trial_b__in=answers)
    preferences = between.select_related("condition__grader", "condition__rubric", "condition__panel")
    shown = list(preferences.order_by("condition", "pk")[:MAX_PREFERENCES])
    return Transcript(page, _group(cells.values()), people, shown)


def _load_first_trials(trials: Any) -> Any:
    rank = Window(
        RowNumber(),
        partition_by=[F("run__condition"), F("dimension")],
        order_by=["run__wave__number", "sample_idx", "pk"],
    )
    first_trials = trials.annotate(rank=rank).filter(rank__lte=MAX_TRANSCRIPT_ANSWERS)
    return (
        first_trials.select_related(
            "run__wave", "run__condition__model__endpoint", "run__condition__prompt", "run__condition__sampler",
            "dimension",
        )
        .defer("answer", "reasoning", "messages", "raw_response", "error", "run__errors")
        .annotate(
            answer_start=Left("answer", MAX_CHARACTERS),
            answer_size=OctetLength("answer"),
            reasoning_start=Left("reasoning", MAX_CHARACTERS),
            reasoning_size=OctetLength("reasoning"),
            short_messages=ShortMessages("messages"),
            messages_length=Func("messages", function="jsonb_array_length", output_field=IntegerField()),
            error_start=Left("error", MAX_CHARACTERS),
        )
        .order_by("run__wave__number", "sample_idx", "pk")
    )  # fmt: skip


def _group(cells: Iterable[TranscriptCell]) -> list[Conversation]:
    """Return the cells under the messages that they share, and give each answer its further steps."""
    grouped: list[Conversation] = []
    for cell in cells:
        first: Turns | None = None
        for answer in cell.answers:
            turns = rebuild_turns(answer.trial)
            shown = [
                replace(turn, text=turn.text[:MAX_CHARACTERS], size=turn.size or len(turn.text.encode()))
                for turn in turns.turns
            ]
            end = len(shown)
            if answer.trial.messages is not None:
                end = next((at for at, turn in enumerate(shown) if turn.role in ("assistant", "tool")), end)
            answer.steps = list(enumerate(shown[end:], start=end + 1))
            first = first or replace(turns, turns=shown[:end])
        if first is None:
            continue
        if grouped and grouped[-1].turns == first:
            grouped[-1].cells.append(cell)
        else:
            grouped.append(Conversation(first, cell.answers[0].trial, [cell]))
    return grouped
