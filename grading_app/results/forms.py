"""The choices in the addresses of result pages: both sides of a comparison, and the items and cells of the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import QueryDict

from evalsite.lib.web.form_fields import NamedChoiceField
from grading_app.models import BlindReading
from grading_app.results.comparison.condition_sides import ConditionSide
from grading_app.results.scope import MISSING_CHOICES, ScopeForm
from grading_app.results.scores import Measure, match_measure
from runs_app.models import Experiment

FILTERS = {
    "all": "All",
    "gained": "Gained",
    "lost": "Lost",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
    "equal": "Equal",
}
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


class CompareForm(forms.Form):
    a = forms.ChoiceField(label="A")
    b = forms.ChoiceField(label="B")
    measure = NamedChoiceField(label="Measure", required=False)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=MISSING_CHOICES,
    )
    margin = forms.FloatField(
        label="Equivalence margin",
        required=False,
        widget=forms.NumberInput(attrs={"step": "any", "min": "0"}),
    )
    filter = forms.ChoiceField(required=False, choices=list(FILTERS.items()), widget=forms.HiddenInput())

    def __init__(self, data: Any, sides: Mapping[str, Sequence[ConditionSide]], measures: Sequence[Measure]) -> None:
        super().__init__(data)
        groups = [(slug, [(side.reference, side.name) for side in rows]) for slug, rows in sides.items() if rows]
        for name, choices in (
            ("a", groups),
            ("b", groups),
            ("measure", [(measure.key, measure.label) for measure in measures]),
        ):
            field: Any = self.fields[name]
            field.choices = choices
        field.find_key = lambda name: match_measure(measures, name).key

    def clean_margin(self) -> float | None:
        margin: float | None = self.cleaned_data["margin"]
        if margin is not None and not 0 < margin < 1e9:
            raise forms.ValidationError("Enter a number above 0, or leave it empty.")
        return margin


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
