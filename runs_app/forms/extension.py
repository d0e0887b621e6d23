"""The form that extends a launched design."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse
from django.utils.html import format_html

from evalsite.lib.web.choice_fields import get_choice_field, offer_rows
from runs_app.forms.experiments import RowsField, select_usable_rows
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.extension import Extension, ExtensionPreview

AXES = ("language_models", "prompts", "samplers", "dimensions")


class ExtensionForm(forms.Form):
    """The rows that `experiment` can add to its design: usable rows that it does not have yet."""

    language_models = RowsField(queryset=LanguageModel.objects.none(), required=False, label="Add models")
    prompts = RowsField(queryset=Prompt.objects.none(), required=False, label="Add prompts")
    samplers = RowsField(queryset=Sampler.objects.none(), required=False, label="Add samplers")
    dimensions = RowsField(queryset=Dimension.objects.none(), required=False, label="Add dimensions")
    samples = forms.IntegerField(max_value=10_000, required=False, label="Samples")
    wave = forms.ChoiceField(label="Wave", help_text="The wave that gets the new trials")
    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")
    preview_digest = forms.CharField(max_length=200, required=False, widget=forms.HiddenInput)
    confirmed = forms.BooleanField(required=False, label="I accept the maximum cost")

    def __init__(self, *args: Any, experiment: Experiment, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.experiment = experiment
        self.present = {axis: list(getattr(experiment, axis).order_by("pk")) for axis in AXES}
        for axis, rows in select_usable_rows(user).items():
            if axis in AXES:
                offer_rows(self, axis, rows.exclude(pk__in=[row.pk for row in self.present[axis]]))
        samples = self.fields["samples"]
        samples.widget.attrs["min"] = experiment.samples
        samples.initial = experiment.samples
        samples.help_text = f"Repetitions of each cell, now {experiment.samples}. Can only increase"
        waves = list(experiment.waves.order_by("number"))
        if len(waves) > 1:
            get_choice_field(self, "wave").choices = [(str(wave.number), str(wave)) for wave in waves]
            self.labels = {str(wave.number): wave.label for wave in waves}
        else:
            del self.fields["wave"]
        if not self.present["dimensions"]:
            del self.fields["dimensions"]

    def explain_empty_choices(self) -> None:
        """Explain at each axis without choices that the design has all usable rows. This fetches the choices."""
        for axis in AXES:
            if axis in self.fields and not list(self.fields[axis].widget.choices):
                is_model = axis == "language_models"
                address = reverse("endpoint_list") if is_model else reverse("library_list", args=[axis])
                link = format_html('<a href="{}">Show {}</a>', address, "endpoints" if is_model else axis)
                self.fields[axis].help_text = format_html("The design already has every row that you can add. {}", link)

    def clean_samples(self) -> int | None:
        samples: int | None = self.cleaned_data["samples"]
        if samples is not None and samples < self.experiment.samples:
            raise forms.ValidationError(
                f"There are trials for {self.experiment.samples} samples already. Enter a higher number."
            )
        return None if samples == self.experiment.samples else samples

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors and self.extension.is_empty:
            raise forms.ValidationError("Choose something to add, or increase the samples.")
        return cleaned

    @property
    def extension(self) -> Extension:
        """Return the chosen extension. The form must be valid."""
        rows = {axis: list(self.cleaned_data.get(axis, ())) for axis in AXES}
        return Extension(**rows, samples=self.cleaned_data["samples"])

    @property
    def wave_label(self) -> str:
        if "wave" not in self.fields:
            return self.experiment.get_first_wave_label()
        return self.labels[self.cleaned_data["wave"]]

    def check_confirmation(self, preview: ExtensionPreview) -> bool:
        """Return True if the user saw this size and cost and gave any required confirmation. Else add an error."""
        if self.cleaned_data["preview_digest"] != preview.digest:
            self.add_error(None, "The size or cost has changed since it was shown. Check it, then extend.")
        elif preview.needs_confirmation and not self.cleaned_data["confirmed"]:
            self.add_error("confirmed", "Confirm the maximum cost.")
        return not self.errors
