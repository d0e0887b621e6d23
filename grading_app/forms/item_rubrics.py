"""The forms of item rubrics: the model that writes them, and a curator's corrections."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.choice_fields import add_create_link
from grading_app.judging.default_sampler import get_default_sampler
from grading_app.judging.item_rubrics import LONGEST_TEXT, RubricWriter
from grading_app.models import Rubric
from runs_app.models import Experiment, LanguageModel, Sampler


class WriterForm(forms.Form):
    """The model that writes, its template, and the set that it writes into."""

    name = forms.CharField(max_length=80, validators=[slug_validator], help_text="Of the set of rubrics that it makes")
    template = forms.ModelChoiceField(Rubric.objects.none(), empty_label=None, help_text="Approved, and kept for this")
    model = forms.ModelChoiceField(LanguageModel.objects.none(), empty_label=None)
    sampler = forms.ModelChoiceField(
        Sampler.objects.none(), required=False, empty_label="Temperature 0", help_text="How the texts are drawn"
    )

    def __init__(self, data: Any = None, *, user: Any, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        fields: Any = self.fields
        approved = Rubric.objects.visible_to(user).filter(kind=Rubric.Kind.WRITER, status=Rubric.Status.APPROVED)
        fields["template"].queryset = approved
        fields["model"].queryset = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True)
        fields["sampler"].queryset = Sampler.objects.exclude(status=Sampler.Status.ARCHIVED)
        new_template = reverse("admin:grading_app_rubric_add") + "?starter=writer"
        add_create_link(self, "template", user, "grading_app.add_rubric", new_template, "Write another template")
        new_sampler = reverse("admin:runs_app_sampler_add")
        add_create_link(self, "sampler", user, "runs_app.add_sampler", new_sampler, "Make another sampler")

    def writer(self, experiment: Experiment) -> RubricWriter:
        """Return the writer of a valid form."""
        said = self.cleaned_data
        return RubricWriter(experiment, said["template"], said["model"], said["sampler"] or get_default_sampler())


class ConfirmForm(forms.Form):
    confirmed = forms.BooleanField(label="I have seen what this can cost")


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        help_text="Stays in the history",
        error_messages={"required": "Enter a reason. It is stored in the history."},
    )


class CorrectionForm(ReasonForm):
    field_order = ("text", "reason")
    text = forms.CharField(max_length=LONGEST_TEXT, strip=False, widget=forms.Textarea(attrs={"rows": 8}))
