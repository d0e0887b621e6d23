"""The forms of notes, flags and tags, and of a draft dataset of annotated items."""

from __future__ import annotations

from django import forms
from django.http import QueryDict

from datasets_app.models.datasets import slug_validator
from runs_app.models import Annotation
from runs_app.models.annotations import MAX_TEXT_LENGTH, MISSING, AnnotationError, clean_text, read_tags

Kind = Annotation.Kind
LABELS = {Kind.NOTE: "Note", Kind.FLAG: "Reason for the flag", Kind.TAG: "Tags"}
BUTTONS = {Kind.NOTE: "Add note", Kind.FLAG: "Flag", Kind.TAG: "Add tags"}


class AnnotationForm(forms.Form):
    """A note, the reason for a flag, or comma-separated tags."""

    kind = forms.ChoiceField(choices=Kind.choices, widget=forms.HiddenInput())
    text = forms.CharField(strip=False)

    def __init__(self, kind: str, data: QueryDict | None = None, text: str = "") -> None:
        kind = kind if kind in Kind.values else Kind.NOTE
        super().__init__(data, initial={"kind": kind, "text": text}, auto_id=f"id_{kind}_%s")
        self.annotation_kind = kind
        field = self.fields["text"]
        field.label = LABELS[Kind(kind)]
        field.error_messages["required"] = MISSING[Kind(kind)]
        limits = {"maxlength": MAX_TEXT_LENGTH, "autocomplete": "off"}
        field.widget = (
            forms.Textarea(attrs={**limits, "rows": 3}) if kind == Kind.NOTE else forms.TextInput(attrs=limits)
        )
        if kind == Kind.TAG:
            field.help_text = "Separated by commas"

    @property
    def submit_label(self) -> str:
        return BUTTONS[Kind(self.annotation_kind)]

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        try:
            return (
                ", ".join(read_tags(text))
                if self.annotation_kind == Kind.TAG
                else clean_text(self.annotation_kind, text)
            )
        except AnnotationError as error:
            raise forms.ValidationError(str(error)) from error


class AnnotatedDatasetForm(forms.Form):
    """The name of a draft dataset of annotated items, and the reason for it."""

    slug = forms.CharField(
        label="Name", max_length=80, validators=[slug_validator], help_text="Lower-case letters, digits, - and _"
    )
    reason = forms.CharField(label="Reason", max_length=500, required=False)
