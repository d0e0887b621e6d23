"""The forms of run control: reasons, limits, and the scope of a launch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django import forms

from evalsite.lib.web.form_fields import NumberField
from runs_app.bounds import BOUNDS
from runs_app.experiment_options import get_option
from runs_app.forms.fields import bounded_integer
from runs_app.planning.power import DEFAULT_ASSUMPTIONS, Assumptions


class RunControlForm(forms.Form):
    """The reason of an action and, for a retry, the error class."""

    reason = forms.CharField(max_length=500, required=False, label="Reason")
    only = forms.CharField(max_length=40, required=False, label="Error class")

    def __init__(self, *args: Any, reason_required: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = reason_required


class ConcurrencyForm(forms.Form):
    max_concurrency = bounded_integer(BOUNDS["run"]["max_concurrency"], label="Calls in flight")


class PriorityForm(RunControlForm):
    priority = bounded_integer(BOUNDS["experiment"]["priority"], label="Priority")


class AssumptionsForm(forms.Form):
    """The assumptions of a detectable difference, from the URL of the design page."""

    between = NumberField(
        min_value=0, max_value=1, label="Variance between items", help_text="Share of the total variance, 0 to 1"
    )
    correlation = NumberField(
        min_value=-1, max_value=1, label="Correlation of conditions", help_text="Over items, -1 to 1"
    )
    alpha = NumberField(min_value=0.0001, max_value=0.5, label="Level", help_text="Two-sided")
    power = NumberField(min_value=0.5, max_value=0.9999, label="Power")

    def __init__(self, data: Any) -> None:
        """Fill each missing value with its default, so that the field shows it."""
        values = {name: data.get(name) for name in self.base_fields if data.get(name)}
        super().__init__({**asdict(DEFAULT_ASSUMPTIONS), **values})

    @property
    def chosen(self) -> Assumptions:
        """Return the chosen assumptions, or the defaults if the input is invalid."""
        return Assumptions(**self.cleaned_data) if self.is_valid() else DEFAULT_ASSUMPTIONS


class LaunchScopeForm(forms.Form):
    """The part of a design to launch, from a URL or a form."""

    wave = forms.CharField(
        max_length=80,
        required=False,
        label="Wave",
        help_text="A label starts a new wave of the whole design. Empty: continue the first wave",
    )
    pilot = forms.IntegerField(
        min_value=1,
        max_value=1_000_000,
        required=False,
        label="Pilot trials",
        help_text="Run this many first, spread over conditions and items; a later launch adds the rest",
    )

    policy = forms.ChoiceField(
        choices=[("", "As in the design"), *get_option("budget_policy").choices],
        required=False,
        widget=forms.HiddenInput,
    )

    @property
    def chosen(self) -> dict[str, Any]:
        """Return the chosen scope. If the input is invalid, return the whole first wave."""
        return self.cleaned_data if self.is_valid() else {"wave": "", "pilot": None, "policy": ""}


class LaunchForm(LaunchScopeForm):
    confirmed = forms.BooleanField(required=False, label="I accept the maximum cost")

    def __init__(self, *args: Any, needs_confirmation: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not needs_confirmation:
            del self.fields["confirmed"]
        else:
            self.fields["confirmed"].required = True
