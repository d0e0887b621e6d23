"""The choices of the matrix: its items, their order, and the display of cells."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from grading_app.models import BlindReading
from grading_app.results.scope import ScopeForm
from runs_app.models import Experiment

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


class MatrixForm(ScopeForm):
    """The scope of the matrix with its order, selection and display. The address holds every choice."""

    sort = forms.ChoiceField(label="Sort by", required=False, choices=list(ORDERS.items()))
    show = forms.ChoiceField(label="Show", required=False, choices=list(SHOWN.items()))
    a = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    b = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
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
        for name, label in zip(("a", "b"), flip_labels, strict=True):
            self._set_choices(name, [("", "Any condition"), *self.labels.items()])
            self.fields[name].label = label

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
