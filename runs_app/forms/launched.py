"""What may still change once an experiment was launched, on its page and by `experiment set`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.db import transaction

from datasets_app.models.history import Actor, record_changes
from runs_app.designs.reserving import problems_under, reserve_anew
from runs_app.forms.experiments import ExperimentForm
from runs_app.forms.fields import PriorityField
from runs_app.models import Experiment, Run

NOTED = {
    "max_usd": "budget",
    "confirm_above_usd": "confirm above",
    "stop_failure_rate": "stop_failure_rate",
    "samples": "samples",
    "sharing": "sharing",
    "on_empty": "empty answers",
}


class LaunchedExperimentForm(forms.ModelForm):  # type: ignore[type-arg]
    """Nothing that a model was asked."""

    priority = PriorityField()

    class Meta:
        model = Experiment
        fields = [
            "title", "description", "sharing", "samples", "on_empty", "priority", "max_usd", "confirm_above_usd",
            "stop_failure_rate",
        ]  # fmt: skip
        labels = ExperimentForm.Meta.labels
        help_texts = {
            "samples": "May grow; the next launch adds what is missing",
            "max_usd": "US dollars; holds from the next call on",
            "stop_failure_rate": ExperimentForm.Meta.help_texts["stop_failure_rate"]
            + ". Counted since it was started last",
            "confirm_above_usd": ExperimentForm.Meta.help_texts["confirm_above_usd"],
        }
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, user: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        self.planned_samples = self.instance.samples
        self.fields["stop_failure_rate"].required = False
        self.former: dict[str, Any] = {name: getattr(self.instance, name) for name in NOTED}

    def clean_samples(self) -> int:
        samples: int = self.cleaned_data["samples"]
        if samples < self.planned_samples:
            raise forms.ValidationError(
                f"There are trials for {self.planned_samples} samples already; this can only grow."
            )
        return samples

    def clean_stop_failure_rate(self) -> float:
        rate: float | None = self.cleaned_data["stop_failure_rate"]
        return self.former["stop_failure_rate"] if rate is None else rate

    def clean_max_usd(self) -> Decimal | None:
        budget: Decimal | None = self.cleaned_data["max_usd"]
        if budget != self.former["max_usd"] and (problems := problems_under(budget, self.instance)):
            raise forms.ValidationError(problems)
        return budget

    def save(self, commit: bool = True) -> Experiment:
        """Who changed what of all but its words, and from what, is history.

        Only what was asked for is written: the engine counts in the same row meanwhile. What is set aside for each call
        is worked out anew, since without a budget nobody minded it.
        """
        with transaction.atomic():
            experiment: Experiment = super().save(commit=False)
            wanted, experiment.priority = experiment.priority, self.initial["priority"]
            if commit:
                experiment.save(update_fields=[field for field in self.Meta.fields if field != "priority"])
            experiment.change_priority(wanted, by=self.user)
            for name, what in NOTED.items():
                before, after = _said(self.former[name]), _said(getattr(experiment, name))
                if getattr(experiment, name) != self.former[name]:
                    record_changes([(experiment, before, after)], by=self.user, reason="", what=what)
            if experiment.max_usd != self.former["max_usd"]:
                reserve_anew(Run.objects.filter(experiment=experiment))
        return experiment


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
