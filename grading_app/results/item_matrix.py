"""The matrix of items and conditions: its choices, the order of items, the cells of a page, and a table for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django import forms
from django.http import QueryDict

from datasets_app.models import Item
from evalsite.lib.sql import fetch_rows
from evalsite.lib.web.form_fields import NamedChoiceField
from grading_app.models import BlindReading
from grading_app.results.closeness import load_norms
from grading_app.results.scope import MISSING_WRONG, Scope, ScopeForm
from grading_app.results.scores import EXCLUSIONS, IN_SCOPE, OF_MEASURE, make_parameters
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics import item_scores
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.models import Experiment, Trial
from runs_app.models.annotations import list_flagged_items

MAX_ITEMS, MAX_CONDITIONS, MAX_CELLS, MAX_TRIALS = 50, 100, 1_500, 10_000
"""Limits of one page, so that its size does not depend on the number of conditions and repetitions."""
ORDERS = {
    "disagreement": "Disagreement",
    "dataset": "Dataset order",
    "repetitions": "Repetition spread",
    "difficulty": "Lowest mean first",
    "easiest": "Highest mean first",
    "norm": "Distance from norm",
}
SHOWN = {
    "": "All items",
    "different": "Scores that differ",
    "failures": "Failures",
    "unsolved": "Right in no condition",
    "flagged": "Flagged",
}
DISPLAYS = {
    "": "Score and answer",
    "answer": "Extracted answer",
    "length": "Length of the answer",
    "cost": "Cost",
    "latency": "Latency",
}


MAX_OPTIONS = 40
"""With more conditions, a text input with suggestions replaces each list of conditions."""


class ConditionNameInput(forms.TextInput):
    """A text input for a condition's label, with the labels of the `datalist` of the matrix as suggestions."""

    def __init__(self, labels: Mapping[int, str]) -> None:
        super().__init__({"list": "matrix-conditions", "autocomplete": "off", "placeholder": "Any condition"})
        self.labels = {str(key): label for key, label in labels.items()}

    def format_value(self, value: Any) -> str:
        return self.labels.get(str(value), str(value or ""))


class ConditionField(NamedChoiceField):
    """A condition, by its number or its label, as a number; None if it is empty."""

    def clean(self, value: Any) -> int | None:
        key = super().clean(value)
        return int(key) if key else None


class MatrixForm(ScopeForm):
    """The scope of the matrix with its order, selection and display. The address holds every choice."""

    sort = forms.ChoiceField(label="Sort by", required=False, choices=list(ORDERS.items()))
    show = forms.ChoiceField(label="Show", required=False, choices=list(SHOWN.items()))
    a = ConditionField(required=False)
    b = ConditionField(required=False)
    display = forms.ChoiceField(label="Display", required=False, choices=list(DISPLAYS.items()))
    USUAL = ("measure", "sort", "show")
    field_order = ("measure", "wave", "display", "sort", "show", "a", "b", "category", "missing")

    def __init__(self, data: QueryDict, experiment: Experiment, blind: BlindReading | None = None) -> None:
        super().__init__(data, experiment, blind)
        for name in ("baseline", "margin"):
            del self.fields[name]
        for name in ("condition", "exclude", "without"):  # Links from other pages set these; the filter keeps them.
            self.fields[name].widget = forms.MultipleHiddenInput()
        # The labels of the two choices. A measure from 0 to 1 is right or wrong.
        key = self["measure"].value()
        measure = next((candidate for candidate in self.measures if candidate.key == key or not key), None)
        is_share = measure is not None and (measure.low, measure.high) == (0.0, 1.0)
        flip_labels = ("Right in", "Wrong in") if is_share else ("Higher in", "Lower in")
        numbers = {label.casefold(): str(key) for key, label in self.labels.items()}
        for name, label in zip(("a", "b"), flip_labels, strict=True):
            self._set_choices(name, [("", "Any condition"), *self.labels.items()])
            field: Any = self.fields[name]
            field.label = label
            field.find_key = lambda text: numbers.get(text.strip().casefold(), text)
            if self.suggests_conditions:
                field.widget = ConditionNameInput(self.labels)

    @property
    def suggests_conditions(self) -> bool:
        return len(self.labels) > MAX_OPTIONS

    @property
    def usual_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.USUAL]

    @property
    def rare_fields(self) -> list[forms.BoundField]:
        """Return the fields that the page folds."""
        return [field for field in self.visible_fields() if field.name not in self.USUAL]

    def clean(self) -> dict[str, Any]:
        return {**(super().clean() or self.cleaned_data), "baseline": None, "margin": None}

    def clean_sort(self) -> str:
        return self.cleaned_data["sort"] or "disagreement"


@dataclass(frozen=True)
class ItemSelection:
    """Which items the matrix shows, and in which order.

    a, b: conditions that answer the items right and wrong, or None. For scores that are not right or wrong: a scores
    higher than b.
    """

    sort: str = "dataset"
    show: str = ""
    a: int | None = None
    b: int | None = None


def select_items(scope: Scope, scores: ItemScores, selection: ItemSelection) -> ItemScores:
    """Return the scores of the selected items, in the selected order."""
    selected = scores.select_items(_filter_items(scope, scores, selection))
    if selection.sort == "dataset":
        return selected
    if selection.sort == "disagreement":
        order = item_scores.sort_positions(selected.disagreement())
    elif selection.sort == "repetitions":
        order = item_scores.sort_positions(selected.repetition_spread())
    elif selection.sort == "norm":
        order = item_scores.sort_positions(selected.norm_distance(load_norm_means(scope, selected)))
    else:
        order = item_scores.sort_positions(selected.item_means(), descending=selection.sort == "easiest")
    columns = {name: getattr(selected, name)[order] for name in ("items", "n", "missing", "mean", "within")}
    return ItemScores(conditions=selected.conditions, is_binary=selected.is_binary, **columns)


def _filter_items(scope: Scope, scores: ItemScores, selection: ItemSelection) -> item_scores.Mask:
    is_selected = np.ones(len(scores.items), dtype=np.bool_)
    if selection.show == "flagged":
        is_selected &= np.isin(scores.items, list_flagged_items(scope.experiment))
    elif selection.show:
        is_selected &= item_scores.SELECTIONS[selection.show](scores)
    if selection.show == "failures":
        runs = scope.experiment.answer_runs
        runs = runs.filter(wave=scope.wave) if scope.wave else runs
        runs = runs.filter(condition__in=scope.conditions) if scope.conditions else runs
        failed = Trial.objects.filter(run__in=list(runs.values_list("pk", flat=True)), status="failed")
        if scope.measure.dimension:
            failed = failed.filter(dimension=scope.measure.dimension)
        is_selected |= np.isin(scores.items, list(failed.order_by().values_list("item_id", flat=True).distinct()))
    a, b = selection.a, selection.b
    if not {a, b} <= {None, *scores.conditions.tolist()}:  # A condition without runs in this wave has no answers.
        return np.zeros_like(is_selected)
    if scores.is_binary:
        is_selected &= scores.find_items_mostly_answered(a, right=True) if a is not None else True
        is_selected &= scores.find_items_mostly_answered(b, right=False) if b is not None else True
    elif a is not None and b is not None:
        is_selected &= scores.find_higher_items(a, b)
    return is_selected


def load_norm_means(scope: Scope, scores: ItemScores) -> Floats:
    """Return the human mean of each item on the measure's dimension, (items,); NaN for items without a norm."""
    norms = load_norms(scope.experiment, scope.measure, scores.items)
    return norms.mean if norms else np.full(len(scores.items), np.nan)


def get_items_per_page(scores: ItemScores) -> int:
    """Return how many items fit on a page within its limits, but at least five."""
    conditions = min(MAX_CONDITIONS, max(1, len(scores.conditions)))
    answers = scores.n + scores.missing
    repetitions = max(1.0, float(answers.sum()) / max(1, int((answers > 0).sum())))
    return int(max(5, min(MAX_ITEMS, MAX_CELLS / conditions, MAX_TRIALS / conditions / repetitions)))


def make_matrix_table(scope: Scope, scores: ItemScores, labels: Mapping[int, str]) -> ResultTable:
    """Return the mean scores as a table for files, with a row for each item and a column for each condition."""
    dataset_items = Item.objects.filter(dataset=scope.experiment.dataset_id).values_list("pk", "key", "category")
    names_by_item = {pk: (key, category) for pk, key, category in dataset_items.iterator()}
    norms = load_norm_means(scope, scores)
    has_norms = not np.isnan(norms).all()
    names = [labels[key] for key in scores.conditions.tolist()]
    columns = [
        ResultColumn("item", "Item"),
        ResultColumn("category", "Category"),
        *([ResultColumn("human_norm", "Human norm", "number")] if has_norms else []),
        *(ResultColumn(f"mean {name}", name, "number") for name in names),
    ]
    rows = []
    for row, key in enumerate(scores.items.tolist()):
        means = {f"mean {name}": mean for name, mean in zip(names, scores.mean[row].tolist(), strict=True)}
        rows.append(
            {"item": names_by_item[key][0], "category": names_by_item[key][1], "human_norm": norms[row], **means}
        )
    title = f"Mean {scope.measure.label} by item and condition"
    return ResultTable("matrix", title, columns, rows, formula="Each cell is the mean over waves and repetitions.")


EXCERPT_LENGTH = 80
"""The number of characters of an answer that a cell shows."""
AMOUNTS = {"length": "length(answer)", "cost": "cost_usd", "latency": "latency_ms / 1000.0"}
"""The amounts that cells can show: means over the done trials, in characters, US dollars or seconds."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The trials of one item under one condition.

    failed: failed trials. open: trials that are pending or running. missing: answers without a score.
    scores: of the scored answers, in no order. mean: over the scores, with missing scores as the scope counts them.
    extracted: the most frequent extracted answer, or else the beginning of an answer. amount: the requested mean.
    """

    trials: int
    failed: int
    open: int
    missing: int
    scores: tuple[float, ...]
    mean: float | None
    extracted: str
    amount: float | None


def load_cells(
    scope: Scope, items: Sequence[int], conditions: Sequence[int], amount: str = ""
) -> dict[tuple[int, int], MatrixCell]:
    """Load the cells of these items and conditions in one query, by (item, condition). Cells without trials are absent.

    The unique index of trials finds the trials by (run, item). amount: a key of AMOUNTS, or "".
    """
    runs = scope.experiment.answer_runs.filter(condition__in=list(conditions))
    runs = runs.filter(wave=scope.wave) if scope.wave else runs
    parameters = {
        **make_parameters(scope.experiment, scope.measure, scope.wave),
        "runs": list(runs.values_list("pk", flat=True)),
        "items": list(items),
        "excerpt": EXCERPT_LENGTH,
    }
    counts_missing, cells = scope.missing == MISSING_WRONG, {}
    for item, condition, trials, failed, open_, missing, found, extracted, mean_amount in fetch_rows(
        _build_statement(scope, amount), parameters
    ):
        scores = tuple(found or ())
        counted = (*scores, *[scope.measure.lowest] * missing) if counts_missing else scores
        mean = sum(counted) / len(counted) if counted else None
        shown = None if mean_amount is None else float(mean_amount)
        cells[item, condition] = MatrixCell(trials, failed, open_, missing, scores, mean, extracted or "", shown)
    return cells


def _build_statement(scope: Scope, amount: str) -> str:
    """Return SQL for the cells. A cell shows what the grader read from the answers, or else their beginnings.

    OFFSET 0 makes PostgreSQL look up each run and item. Otherwise it reads all trials of a run that its statistics do
    not know yet.
    """
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(scope.excluded_answers))
    mean_amount = f"avg({AMOUNTS[amount]}) FILTER (WHERE status = 'done')" if amount else "NULL"
    source, extracted = "grading_app_answerscore", "nullif(left(score_raw, %(excerpt)s), '')"
    if scope.measure.is_rating:
        extracted = "score::integer::text"
    elif scope.measure.is_of_people:  # They were asked about some answers only.
        source = """(SELECT a.*, g.score, g.score_raw, g.is_graded, %(kind)s::text AS grader_kind,
            %(grader)s::bigint AS grader_id FROM runs_app_answer a LEFT JOIN grading_app_answerscore g
            ON g.trial_id = a.trial_id AND g.grader_kind = %(kind)s AND g.grader_id = %(grader)s) AS shown"""
    return f"""SELECT item_id, condition_id, count(*), count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status IN ('pending', 'running')),
            count(*) FILTER (WHERE score IS NULL AND is_graded AND status = 'done'),
            array_agg(score) FILTER (WHERE score IS NOT NULL),
            coalesce(mode() WITHIN GROUP (ORDER BY {extracted}),
                min(nullif(left(answer, %(excerpt)s), '')) FILTER (WHERE status = 'done')),
            {mean_amount}
        FROM unnest(%(runs)s::bigint[]) AS of_run CROSS JOIN unnest(%(items)s::bigint[]) AS of_item CROSS JOIN LATERAL (
            SELECT * FROM {source}
            WHERE {IN_SCOPE} AND {OF_MEASURE} AND run_id = of_run AND item_id = of_item{filters} OFFSET 0
        ) AS answers
        GROUP BY 1, 2"""  # noqa: S608
