"""Which judge to ask about which answers, and which panel to convene."""

from __future__ import annotations

from typing import Any

from django import forms

from grading_app.models import Grader, Panel
from runs_app.models import Experiment, Wave


class JudgeForm(forms.Form):
    """A grader over the stored answers of one wave or of all."""

    grader = forms.ModelChoiceField(
        Grader.objects.none(),
        to_field_name="name",
        empty_label=None,
        help_text="A judge model with an approved rubric. New ones are made in the admin.",
    )
    wave = forms.ModelChoiceField(
        Wave.objects.none(), to_field_name="number", required=False, empty_label="All waves", label="Answers of"
    )
    force = forms.BooleanField(
        required=False, label="Judge again what it has judged", help_text="A new verdict replaces the one before."
    )

    def __init__(self, data: Any, *, experiment: Experiment, user: Any, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.experiment = experiment
        graders = Grader.objects.visible_to(user).usable().select_related("rubric", "language_model")
        self.fields["grader"].queryset = graders.order_by("name")  # type: ignore[attr-defined]
        self.fields["wave"].queryset = experiment.waves.all()  # type: ignore[attr-defined]
        if experiment.waves.count() < 2:
            del self.fields["wave"]

    @property
    def waves(self) -> list[Wave]:
        """Of a valid form."""
        chosen = self.cleaned_data.get("wave")
        return [chosen] if chosen else list(self.experiment.waves.all())


class ConfirmedJudgeForm(JudgeForm):
    """The same, sent: what it can cost was seen."""

    confirmed = forms.BooleanField(label="I have seen what this can cost")

    def __init__(self, data: Any, *, needs_confirmation: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        for name in self.fields.keys() - {"confirmed"}:
            self.fields[name].widget = self.fields[name].hidden_widget()
        if not needs_confirmation:
            del self.fields["confirmed"]


class PanelForm(forms.Form):
    panel = forms.ModelChoiceField(Panel.objects.none(), to_field_name="name", empty_label=None)

    def __init__(self, data: Any = None, *, user: Any) -> None:
        super().__init__(data)
        self.fields["panel"].queryset = Panel.objects.visible_to(user)  # type: ignore[attr-defined]
