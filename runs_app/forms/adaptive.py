"""The fields of the adaptive stopping rule, a part of the form of an experiment."""

from __future__ import annotations

from typing import Any

from django import forms
from pydantic import ValidationError

from evalsite.lib.web.choice_fields import choice_field
from runs_app.bounds import ADAPTIVE
from runs_app.forms.fields import bounded_integer, bounded_number, names_in
from runs_app.planning.specs import AdaptiveSpec

USUAL = {name: field.default for name, field in AdaptiveSpec.model_fields.items() if not field.is_required()}


class AdaptiveForm(forms.Form):
    """The form of an experiment's `adaptive` mapping. `content` is that mapping, empty if the rule is not used."""

    by = forms.CharField(
        max_length=500,
        required=False,
        label="Points by",
        help_text="category, or comma-separated names of metadata. Empty: run every case",
    )
    scorer = forms.ChoiceField(required=False, help_text="Decides right or wrong; use the rating for rated items")
    round = bounded_integer(ADAPTIVE["round"], required=False, label="Round", help_text="Cases per round")
    max = bounded_integer(ADAPTIVE["max"], required=False, label="Maximum", help_text="Cases per point")
    targetci = bounded_number(
        ADAPTIVE["targetci"],
        required=False,
        label="Target half-width",
        help_text="0.05 is ±5 percentage points; for ratings, in points of the scale",
    )
    confidence = bounded_number(ADAPTIVE["confidence"], required=False, label="Confidence")
    minci = bounded_number(
        ADAPTIVE["minci"], required=False, label="Minimum half-width", help_text="The target is never smaller than this"
    )
    abortht = bounded_number(
        ADAPTIVE["abortht"], required=False, label="Abort above", help_text="Share of truncated answers, 0 to 1"
    )
    backoffht = bounded_number(
        ADAPTIVE["backoffht"],
        required=False,
        label="Relax target above",
        help_text="Share of truncated answers, 0 to 1",
    )
    targetciht = bounded_number(ADAPTIVE["targetciht"], required=False, label="Relaxed half-width")
    correction = forms.ChoiceField(
        required=False,
        label="Guessing",
        choices=[("mapped", "Mapped interval"), ("excess_counts", "Excess counts (too narrow near chance level)")],
        help_text="Correction for guessing in multiple choice",
    )

    def __init__(self, data: Any, *, stored: dict[str, Any], scorers: list[tuple[str, str]]) -> None:
        by = stored.get("by", "")
        initial = {**USUAL, **stored, "by": by if isinstance(by, str) else ", ".join(by)}
        super().__init__(data, prefix="adaptive", initial=initial)
        choice_field(self, "scorer").choices = [("", "Choose a rule"), *scorers]
        self.content: dict[str, Any] = {}

    @property
    def is_used(self) -> bool:
        """Return True if the rule is set; then its section is shown open."""
        return bool(self["by"].value())

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        names = names_in(cleaned.get("by", ""))
        if not names or self.errors:
            return cleaned
        said = {name: value for name, value in cleaned.items() if value not in (None, "")}
        said["by"] = "category" if names == ["category"] else names
        try:
            self.content = AdaptiveSpec.model_validate(said).content
        except ValidationError as refused:
            for problem in refused.errors():
                self._refuse(problem)
        return cleaned

    def _refuse(self, problem: Any) -> None:
        field = next((str(step) for step in problem["loc"] if step in self.fields), None)
        missing = problem["type"] == "missing"
        self.add_error(field, "Fill in this field too." if missing else problem["msg"].removeprefix("Value error, "))
