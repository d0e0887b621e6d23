"""The form of a preregistration."""

from __future__ import annotations

from typing import Any

from django import forms

from runs_app.models import Experiment

MAX_TEXT = 20_000
MAX_LINES = 200


def _make_area(label: str, help_text: str, *, required: bool = True, rows: int = 4) -> forms.CharField:
    return forms.CharField(
        label=label,
        help_text=help_text,
        required=required,
        max_length=MAX_TEXT,
        widget=forms.Textarea(attrs={"rows": rows}),
    )


class PreregistrationForm(forms.Form):
    hypotheses = _make_area("Hypotheses", "One for each paragraph, with its direction", rows=6)
    primary_measure = forms.CharField(
        max_length=200, help_text="Name of the dimension, rule or judge that decides the hypotheses"
    )
    secondary_measures = _make_area("Secondary measures", "One name for each line", required=False, rows=3)
    contrasts = _make_area("Contrasts", "The comparisons that test the hypotheses, with tests and corrections")
    exclusions = _make_area("Exclusions", "Items and answers that do not count, and why. Write none if all count")
    stopping_rule = _make_area("Stopping rule", "When the collection of answers ends", rows=3)
    eligible_models = _make_area("Eligible models", "One name for each line. Others are exploratory", rows=4)

    def __init__(self, data: Any, experiment: Experiment) -> None:
        names = experiment.language_models.order_by("name").values_list("name", flat=True)
        initial = {
            "primary_measure": experiment.primary_measure or "",
            "eligible_models": "\n".join(names),
            "stopping_rule": "" if experiment.adaptive else "Every planned trial is asked.",
        }
        super().__init__(data, initial=initial)

    def clean_secondary_measures(self) -> list[str]:
        return self._read_lines("secondary_measures")

    def clean_eligible_models(self) -> list[str]:
        return self._read_lines("eligible_models")

    def _read_lines(self, name: str) -> list[str]:
        lines = [line.strip() for line in self.cleaned_data[name].splitlines() if line.strip()]
        if len(lines) > MAX_LINES:
            raise forms.ValidationError(f"Enter at most {MAX_LINES} lines.")
        return list(dict.fromkeys(lines))
