"""The form that edits a launched experiment, used by its page and by `experiment set`."""

from __future__ import annotations

from copy import copy
from decimal import Decimal
from typing import Any

from django import forms
from django.db import transaction

from evalsite.lib.history import Actor, record_changes
from runs_app.experiment_options import OPTIONS
from runs_app.forms.fields import allow_empty_options, fill_empty_options, state_bounds
from runs_app.models import Experiment, Run

CHANGEABLE = [option for option in OPTIONS if option.changes]


class LaunchedExperimentForm(forms.ModelForm):  # type: ignore[type-arg]
    """The editable fields of a launched experiment. None of them changes the messages to a model."""

    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")

    class Meta:
        model = Experiment
        fields = ["title", "description", *(option.name for option in CHANGEABLE)]
        help_texts = {option.name: option.launched_help for option in CHANGEABLE if option.launched_help}
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, user: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)
        self.user = user
        allow_empty_options(self)
        self.stored = copy(self.instance)

    def clean_samples(self) -> int:
        samples: int = self.cleaned_data["samples"] or self.stored.samples
        if samples < self.stored.samples and self.instance.status != Experiment.Status.DRAFT:
            raise forms.ValidationError(
                f"There are trials for {self.stored.samples} samples already. Enter a higher number."
            )
        return samples

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        fill_empty_options(self, cleaned, self.stored)
        return cleaned

    def clean_max_usd(self) -> Decimal | None:
        budget: Decimal | None = self.cleaned_data["max_usd"]
        if budget != self.stored.max_usd and (problems := self._find_unbounded(budget)):
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
            # It is written under a lock of its own, because every claim reads it.
            priority, experiment.priority = experiment.priority, self.stored.priority
            if commit:
                experiment.save(update_fields=[field for field in self.Meta.fields if field != "priority"])
            experiment.change_priority(priority, by=self.user, reason=reason)
            for option in CHANGEABLE:
                before, after = getattr(self.stored, option.name), getattr(experiment, option.name)
                if after != before and option.name != "priority":
                    texts = (_format_value(before), _format_value(after))
                    record_changes([(experiment, *texts)], by=self.user, reason=reason, aspect=option.aspect)
            if experiment.max_usd != self.stored.max_usd:
                experiment.runs.update_reservations()
        return experiment


def _format_value(value: Any) -> str:
    return "none" if value is None else str(value)
