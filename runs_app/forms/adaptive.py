"""The fields of the adaptive stopping rule, which are part of the experiment form."""

from __future__ import annotations

from typing import Any

import yaml
from django import forms
from pydantic import ValidationError

from evalsite.lib.text.strict_yaml import YamlError, parse_yaml
from evalsite.lib.web.form_fields import get_choice_field
from runs_app.bounds import ADAPTIVE
from runs_app.experiment_files.adaptive_spec import CATEGORY, POINT, AdaptiveSpec
from runs_app.forms.fields import bounded_integer, bounded_number, split_names

DEFAULTS = {name: field.default for name, field in AdaptiveSpec.model_fields.items() if not field.is_required()}


class AdaptiveForm(forms.Form):
    """The form of an experiment's `adaptive` mapping. `content` is that mapping, empty if the rule is not used."""

    from_dataset = forms.BooleanField(
        required=False,
        label="Use the dataset's stopping rules",
        help_text="For datasets of parametric tasks whose space has them. The fields below are then ignored",
    )
    by = forms.CharField(
        max_length=500,
        required=False,
        label="Points by",
        help_text="category, point (of a parametric space), or comma-separated names of metadata. "
        "Empty: run every case",
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
    tasks = forms.CharField(
        required=False,
        max_length=20_000,
        label="Rules per task",
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
        help_text="One line per category that differs, such as arithmetic: {targetci: 0.03, max: 1024}",
    )
    correction = forms.ChoiceField(
        required=False,
        label="Guessing",
        choices=[("mapped", "Mapped interval"), ("excess_counts", "Excess counts (too narrow near chance level)")],
        help_text="Correction for guessing in multiple choice",
    )

    def __init__(self, data: Any, *, stored: dict[str, Any], scorers: list[tuple[str, str]]) -> None:
        by = stored.get("by", "")
        tasks = format_task_rules(stored.get("tasks", {}))
        initial = {**DEFAULTS, **stored, "by": by if isinstance(by, str) else ", ".join(by), "tasks": tasks}
        super().__init__(data, prefix="adaptive", initial=initial)
        get_choice_field(self, "scorer").choices = [("", "Choose a rule"), *scorers]
        self.content: dict[str, Any] = {}

    @property
    def is_used(self) -> bool:
        """Return True if the rule is set. The page then shows its section open."""
        return bool(self["by"].value() or self["from_dataset"].value())

    @property
    def wants_dataset_rules(self) -> bool:
        """Return True if the valid form asks for the rules of the dataset."""
        return bool(self.cleaned_data.get("from_dataset"))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        names = split_names(cleaned.get("by", ""))
        if not names or self.errors or cleaned.get("from_dataset"):
            return cleaned
        values = {name: value for name, value in cleaned.items() if value not in (None, "") and name != "from_dataset"}
        values["by"] = names[0] if names in ([CATEGORY], [POINT]) else names
        if tasks := self._read_tasks(values.pop("tasks", "")):
            values["tasks"] = tasks
        if self.errors:
            return cleaned
        try:
            self.content = AdaptiveSpec.model_validate(values).content
        except ValidationError as error:
            for problem in error.errors():
                field = next((str(step) for step in problem["loc"] if step in self.fields), None)
                missing = problem["type"] == "missing"
                path = ".".join(str(step) for step in problem["loc"][1:]) if field == "tasks" else ""
                message = "Fill in this field too." if missing else problem["msg"].removeprefix("Value error, ")
                self.add_error(field, f"{path}: {message}" if path else message)
        return cleaned

    def _read_tasks(self, text: str) -> Any:
        try:
            return parse_yaml(text) or {}
        except YamlError as error:
            self.add_error("tasks", str(error))
            return {}


def format_task_rules(tasks: dict[str, dict[str, Any]]) -> str:
    """Return the rules per task as YAML, one line each."""
    lines = [{name: rule} for name, rule in tasks.items()]
    return "".join(yaml.safe_dump(line, default_flow_style=None, sort_keys=False, width=200) for line in lines)
