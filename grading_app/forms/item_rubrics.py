"""The forms of item rubrics: the model that writes them, and a curator's corrections."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.form_fields import add_create_link
from grading_app.judging.default_sampler import get_or_create_default_sampler
from grading_app.judging.item_rubrics import RubricWriter
from grading_app.models import Rubric
from runs_app.models import Experiment, LanguageModel, Sampler
from runs_app.models.texts import MAX_TEXT_LENGTH


class WriterForm(forms.Form):
    """The writing model, its template, and the set for its texts."""

    name = forms.CharField(max_length=80, validators=[slug_validator], help_text="The name of the new set of rubrics")
    template = forms.ModelChoiceField(
        Rubric.objects.none(), empty_label=None, help_text="An approved rubric of the kind “Rubric writer”"
    )
    model = forms.ModelChoiceField(LanguageModel.objects.none(), empty_label=None)
    sampler = forms.ModelChoiceField(
        Sampler.objects.none(),
        required=False,
        empty_label="Temperature 0",
        help_text="The sampling settings of the calls",
    )

    def __init__(self, data: Any = None, *, user: Any, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        fields: Any = self.fields
        approved = Rubric.objects.visible_to(user).filter(kind=Rubric.Kind.WRITER, status=Rubric.Status.APPROVED)
        fields["template"].queryset = approved
        fields["model"].queryset = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True)
        fields["sampler"].queryset = Sampler.objects.offered()
        new_template = reverse("library_new", args=["rubrics"]) + "?starter=writer"
        add_create_link(self, "template", user, "grading_app.add_rubric", new_template, "Write another template")
        new_sampler = reverse("library_new", args=["samplers"])
        add_create_link(self, "sampler", user, "runs_app.add_sampler", new_sampler, "Create another sampler")

    def make_writer(self, experiment: Experiment) -> RubricWriter:
        """Return the writer of a valid form."""
        data = self.cleaned_data
        return RubricWriter(
            experiment, data["template"], data["model"], data["sampler"] or get_or_create_default_sampler()
        )


class ConfirmForm(forms.Form):
    confirmed = forms.BooleanField(label="I have seen what this can cost")


class TextReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        help_text="Stored in the history",
        error_messages={"required": "Enter a reason. It is stored in the history."},
    )


class CorrectionForm(TextReasonForm):
    field_order = ("text", "reason")
    text = forms.CharField(max_length=MAX_TEXT_LENGTH, strip=False, widget=forms.Textarea(attrs={"rows": 8}))
