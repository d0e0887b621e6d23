"""The choices of the matrix: what is shown, in which order, and which items."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from grading_app.models import BlindReading
from grading_app.reports.scope import ScopeForm
from runs_app.models import Experiment

ORDERS = {
    "": "Dataset order",
    "disagreement": "Disagreement",
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
    """The scope with the order, the selection and the display of the matrix. The address holds every choice."""

    sort = forms.ChoiceField(label="Sort by", required=False, choices=list(ORDERS.items()))
    show = forms.ChoiceField(label="Show", required=False, choices=list(SHOWN.items()))
    a = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    b = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    display = forms.ChoiceField(label="Display", required=False, choices=list(DISPLAYS.items()))
    field_order = ("measure", "wave", "display", "sort", "show", "a", "b", "category", "unreadable")

    def __init__(self, data: QueryDict, experiment: Experiment, blind: BlindReading | None = None) -> None:
        super().__init__(data, experiment, blind)
        for name in ("baseline", "margin"):
            del self.fields[name]
        for name in ("condition", "exclude", "without"):  # Other pages lead here with them; the filter keeps them.
            self.fields[name].widget = forms.MultipleHiddenInput()
        for name, label in zip(("a", "b"), self._labels_of_flips(), strict=True):
            self._set_choices(name, [("", "Any condition"), *self.labels.items()])
            self.fields[name].label = label

    def _labels_of_flips(self) -> tuple[str, str]:
        """Return the names of the two choices. A measure from 0 to 1 may be right or wrong."""
        key = self.data.get("measure", "")
        measure = next((one for one in self.measures if one.key == key or not key), None)
        is_share = measure is not None and (measure.low, measure.high) == (0.0, 1.0)
        return ("Right in", "Wrong in") if is_share else ("Higher in", "Lower in")

    def clean(self) -> dict[str, Any]:
        return {**(super().clean() or self.cleaned_data), "baseline": None, "margin": None}
