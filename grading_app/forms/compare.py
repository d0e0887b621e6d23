"""The form for the comparison of two sides, sent by GET."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from evalsite.lib.web.form_fields import NamedChoiceField
from grading_app.results.comparison.condition_sides import ConditionSide
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.scores import Measure, match_measure

FILTERS = {
    "all": "All",
    "gained": "Gained",
    "lost": "Lost",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
    "equal": "Equal",
}


class CompareForm(forms.Form):
    a = forms.ChoiceField(label="A")
    b = forms.ChoiceField(label="B")
    measure = NamedChoiceField(label="Measure", required=False)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=[("", "Excluded"), (MISSING_WRONG, "Counted as wrong")],
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
