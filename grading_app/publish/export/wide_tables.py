"""The exported tables that are computed from others: their columns depend on the experiment.

- answers: one row per trial, with the input and target of its item and a column for each measure.
- participants: one row per repetition of a condition, with a column for each item and dimension.
- rating_counts: one row per item, dimension and scale point, also for points that no answer chose.

Snapshots do not hold them, because the stored rows determine them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from django.db.models import Exists, OuterRef

from datasets_app.models import Item
from datasets_app.sampling import SamplingError, sample
from grading_app.publish.export.columns import DESIGN_CELL, DESIGN_JOINS, SHARED_BY_A_RUN, Column, columns
from grading_app.publish.export.export_tables import GENERATING_RUNS, TRIALS, ExportTable
from grading_app.results.scores import Measure, list_measures, name_dimensions
from runs_app.models import Experiment, Trial

Options = Mapping[str, str]
PARTICIPANT_ITEMS = 20
PARTICIPANT_SEED = 42
LARGEST_SEED = 10**18 - 1
MAX_ITEMS = 100_000
MAX_COLUMNS = 1_500  # PostgreSQL allows 1,664 expressions in a SELECT list.
NO_PARTICIPANTS = (
    "Rows are repetitions of a model, not participants: they share one model, so they are not independent people."
)
# The points of a trial's scale, its own rating even if it is outside the scale, and none. A scale of more than 101
# points has rows only for ratings that occur.
SCALE_POINTS = """SELECT NULL::integer AS rating UNION SELECT t.rating UNION SELECT generate_series(
    dim.scale_min, CASE WHEN dim.scale_max - dim.scale_min <= 100 THEN dim.scale_max ELSE dim.scale_min - 1 END)"""
EPOCH = "cell.epoch_offset + t.sample_idx + 1"


class WideTableError(ValueError):
    """A table that this experiment cannot have, or an invalid option. The message says which; `reason` says why."""

    @property
    def reason(self) -> str:
        return str(self).partition(": ")[2]


def build_answers(experiment: Experiment, options: Options) -> ExportTable:
    measures = list_measures(experiment)
    names = make_unique_names([f"score_{measure.key}" for measure in measures])
    scores = [Column(name, "real", _build_score_sql(measure)) for name, measure in zip(names, measures, strict=True)]
    return ExportTable(
        name="answers",
        columns=(
            *DESIGN_CELL,
            Column("trial_id", "integer", "t.id"),
            Column("input", "text", "i.input"),
            Column("image", "text", "i.image_id"),
            Column("target", "text", "i.target"),
            *columns("text", "t", "status answer finish_reason"),
            *columns("flag", "t", "truncated refused"),
            *columns("decimal", "t", "cost_usd"),
            *scores,
        ),
        sections=GENERATING_RUNS,
        source=TRIALS.source,
        where=TRIALS.where,
        key=TRIALS.key,
    )


def _build_score_sql(measure: Measure) -> str:
    """Return SQL for the score of the trial `t`; NULL if it has none, or is of another dimension."""
    if measure.is_rating:
        score = "t.rating"
    elif measure.is_of_people:
        score = f"""(SELECT s.score FROM grading_app_answerscore s WHERE s.trial_id = t.id
            AND s.grader_kind = '{measure.kind}' AND s.grader_id = {measure.grader})"""  # noqa: S608
    else:  # Directly, because a row of the view takes five look-ups.
        score = f"""(SELECT g.score FROM grading_app_grading g
            WHERE g.trial_id = t.id AND g.condition_id = {measure.grader})"""  # noqa: S608
    return score if measure.dimension is None else f"CASE WHEN t.dimension_id = {measure.dimension} THEN {score} END"


def build_participants(experiment: Experiment, options: Options) -> ExportTable:
    dimensions = name_dimensions(list(experiment.dimensions.order_by("pk")))
    if not dimensions:
        raise WideTableError("participants: the experiment has no ratings; the table answers has its scores")
    items = choose_items(experiment, options)
    pairs = [(item, dimension) for item in items for dimension in dimensions]
    if len(pairs) > MAX_COLUMNS:
        raise WideTableError(f"participants: at most {MAX_COLUMNS // len(dimensions)} items fit; choose fewer")
    names = make_unique_names([f"{item.key}_{dimensions[dimension]}" for item, dimension in pairs])
    ratings = [
        Column(name, "integer", f"max(t.rating) FILTER (WHERE t.item_id = {item.pk} AND t.dimension_id = {dimension})")
        for name, (item, dimension) in zip(names, pairs, strict=True)
    ]
    return ExportTable(
        name="participants",
        columns=(
            *SHARED_BY_A_RUN,
            Column("sample_idx", "integer", "t.sample_idx"),
            Column("epoch", "integer", EPOCH),
            Column("note", "text", f"'{NO_PARTICIPANTS}'::text"),
            *ratings,
        ),
        sections=GENERATING_RUNS,
        source=TRIALS.source,
        where=TRIALS.where,
        key="t.sample_idx + 1",  # Keys start above 0, and sample_idx at 0.
        group=f"{SHARED}, t.sample_idx, cell.epoch_offset",
        order="t.sample_idx",
    )


def build_rating_counts(experiment: Experiment, options: Options) -> ExportTable:
    return ExportTable(
        name="rating_counts",
        columns=(
            *SHARED_BY_A_RUN,
            Column("item_key", "text", "i.key"),
            Column("category", "text", "i.category"),
            Column("dimension", "text", "dim.name"),
            Column("rating", "integer", "point.rating"),
            Column("n", "integer", "count(*) FILTER (WHERE t.rating IS NOT DISTINCT FROM point.rating)"),
        ),
        sections=GENERATING_RUNS,
        source=TRIALS.source,
        where=f"{TRIALS.where} AND t.status = 'done' AND t.dimension_id IS NOT NULL",
        key="t.item_id",
        joins=f"{DESIGN_JOINS} CROSS JOIN LATERAL ({SCALE_POINTS}) point",
        group=f"{SHARED}, i.id, i.key, i.category, dim.id, dim.name, point.rating",
        order="i.id, dim.id, point.rating",
    )


SHARED = ", ".join([*(column.sql for column in SHARED_BY_A_RUN), "cell.members"])
BUILDERS: Mapping[str, Callable[[Experiment, Options], ExportTable]] = {
    "answers": build_answers,
    "participants": build_participants,
    "rating_counts": build_rating_counts,
}
OPTIONS: Mapping[str, tuple[str, ...]] = {"participants": ("n_items", "seed")}


def choose_items(experiment: Experiment, options: Options) -> list[Item]:
    """Return the items of the participants table, in the order of the dataset.

    They are drawn in proportion to the categories, from the active items that have trials. A smaller pool is taken
    whole.
    """
    trials = Trial.objects.filter(item=OuterRef("pk"), run__experiment=experiment)
    pool = Item.objects.filter(Exists(trials), dataset=experiment.dataset_id, excluded=False).order_by("position", "pk")
    categories = dict(pool.values_list("key", "category"))
    n = min(_read_number("n_items", options, PARTICIPANT_ITEMS, 1, MAX_ITEMS), len(categories))
    seed = _read_number("seed", options, PARTICIPANT_SEED, 0, LARGEST_SEED)
    try:
        keys = set(sample(categories.items(), "stratified", n, seed)) if categories else set()
    except SamplingError as error:
        raise WideTableError(f"participants: {error}") from error
    return [item for item in pool.only("pk", "key") if item.key in keys]


def _read_number(name: str, options: Options, default: int, low: int, high: int) -> int:
    text = options.get(name, "") or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and low <= int(text) <= high):
        raise WideTableError(f"{name}: enter a whole number from {low:,} to {high:,}, not {text[:40]!r}")
    return int(text)


def make_unique_names(texts: Iterable[str]) -> list[str]:
    """Return a column name for each text: letters, digits, `_`, `.` and `-`, each name once.

    These need no quoting in SQL literals, JSON and CSV, and no spreadsheet runs them as a formula.
    """
    used_names: set[str] = set()
    names = []
    for text in texts:
        name = base = re.sub(r"[^\w.-]+", "_", text).lstrip("-._") or "column"
        number = 2
        while name in used_names:
            name, number = f"{base}_{number}", number + 1
        used_names.add(name)
        names.append(name)
    return names
