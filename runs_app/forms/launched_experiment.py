"""The form that edits a launched experiment, used by its page and by `experiment set`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.db import transaction

from datasets_app.models.history import Actor, record_changes
from runs_app.forms.experiments import ExperimentForm
from runs_app.forms.fields import PriorityField, state_bounds
from runs_app.models import Experiment, Run

HISTORY_LABELS = {
    "max_usd": "budget",
    "confirm_above_usd": "confirm above",
    "stop_failure_rate": "stop_failure_rate",
    "samples": "samples",
    "on_empty": "empty answers",
    "on_unreadable": "unreadable answers",
    "request_timeout_s": "time-out",
    "max_attempts": "attempts",
    "backoff_s": "first wait",
    "max_backoff_s": "longest wait",
    "budget_policy": "launch policy",
    "dev_items": "dev items",
    "dev_samples": "dev samples",
}
# A field that is left empty keeps its stored value.
KEPT_IF_EMPTY = (
    "on_unreadable",
    "stop_failure_rate",
    "request_timeout_s",
    "max_attempts",
    "backoff_s",
    "max_backoff_s",
    "budget_policy",
    "dev_items",
)


class LaunchedExperimentForm(forms.ModelForm):  # type: ignore[type-arg]
    """The editable fields of a launched experiment. None of them changes the messages to a model."""

    priority = PriorityField()
    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")

    class Meta:
        model = Experiment
        fields = [
            "title", "description", "samples", "on_empty", "on_unreadable", "request_timeout_s", "max_attempts",
            "backoff_s", "max_backoff_s", "priority", "max_usd", "confirm_above_usd", "budget_policy", "dev_items",
            "dev_samples", "stop_failure_rate",
        ]  # fmt: skip
        labels = ExperimentForm.Meta.labels
        help_texts = {
            "samples": "Can only increase. The next launch adds the missing trials",
            "budget_policy": "The part of the design that the next launch runs",
            "request_timeout_s": "Seconds per call, from the next calls on",
            "max_attempts": "Attempts per trial. Failed trials need a retry",
            "max_usd": "US dollars; applies from the next call",
            "stop_failure_rate": ExperimentForm.Meta.help_texts["stop_failure_rate"] + ". Counted from the last start",
            "confirm_above_usd": ExperimentForm.Meta.help_texts["confirm_above_usd"],
        }
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, user: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)
        self.user = user
        self.planned_samples = self.instance.samples
        for name in KEPT_IF_EMPTY:
            self.fields[name].required = False
        self.stored_values: dict[str, Any] = {name: getattr(self.instance, name) for name in HISTORY_LABELS}

    def clean_samples(self) -> int:
        samples: int = self.cleaned_data["samples"]
        if samples < self.planned_samples and self.instance.status != Experiment.Status.DRAFT:
            raise forms.ValidationError(
                f"There are trials for {self.planned_samples} samples already. Enter a higher number."
            )
        return samples

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        for name in KEPT_IF_EMPTY:
            if cleaned.get(name) in (None, "") and name not in self.errors:
                cleaned[name] = self.stored_values[name]
        return cleaned

    def clean_max_usd(self) -> Decimal | None:
        budget: Decimal | None = self.cleaned_data["max_usd"]
        if budget != self.stored_values["max_usd"] and (problems := self._find_unbounded(budget)):
            raise forms.ValidationError(problems)
        return budget

    def _find_unbounded(self, budget: Decimal | None) -> list[str]:
        def set_budget(run: Run) -> None:
            run.experiment.max_usd = budget

        problems: list[str] = self.instance.runs.find_unbounded(set_budget)
        return problems

    def save(self, commit: bool = True) -> Experiment:
        """Save the changed fields. Record old and new values with the user, except of title and description.

        Only the form's fields are written, because the engine updates counters in the same row. A changed budget
        updates the reservations, because runs without a budget do not maintain them.
        """
        reason = self.cleaned_data["reason"]
        with transaction.atomic():
            experiment: Experiment = super().save(commit=False)
            priority, experiment.priority = experiment.priority, self.initial["priority"]
            if commit:
                experiment.save(update_fields=[field for field in self.Meta.fields if field != "priority"])
            experiment.change_priority(priority, by=self.user, reason=reason)
            for name, aspect in HISTORY_LABELS.items():
                before, after = _format_value(self.stored_values[name]), _format_value(getattr(experiment, name))
                if getattr(experiment, name) != self.stored_values[name]:
                    record_changes([(experiment, before, after)], by=self.user, reason=reason, aspect=aspect)
            if experiment.max_usd != self.stored_values["max_usd"]:
                experiment.runs.update_reservations()
        return experiment


def _format_value(value: Any) -> str:
    return "none" if value is None else str(value)
