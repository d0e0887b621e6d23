"""Forms about experiments, and the choice of rows for a design."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import Q
from django.utils.text import Truncator

from datasets_app.models import Dataset
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.models.designs import Versioned

MAX_FILE_BYTES = 1_000_000
SLUG_HELP = "Lower-case letters, digits, - and _. Part of the page address"


class RowsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """The rows of one axis of the design, as checkboxes, each with a hint that distinguishes it."""

    widget = forms.CheckboxSelectMultiple

    def label_from_instance(self, row: Any) -> str:
        return f"{name_row(row)} · {hint}" if (hint := describe_row(row)) else name_row(row)


def name_row(row: Any) -> str:
    """Return the name of a row, and its state if nobody has approved it."""
    unapproved = getattr(row, "status", "") in Versioned.UNAPPROVED
    return f"{row}, {row.get_status_display().lower()}" if unapproved else str(row)


def describe_row(row: Any) -> str:
    """Return what tells a row of a design from the others: a prompt's text, or the settings of another row."""
    if isinstance(row, LanguageModel):
        return f"{row.model} at {row.endpoint}" + ("" if row.prices.is_known else ", price unknown")
    if isinstance(row, Prompt):
        turns = [turn["content"] for turn in row.messages if turn["role"] == "user"]
        answer = "" if row.answer_format == row.AnswerFormat.TEXT else f" ({row.get_answer_format_display().lower()})"
        return Truncator(" ".join(" ".join(turns).split())).chars(110) + answer
    if isinstance(row, Sampler):
        return row.summary
    if isinstance(row, Dimension):
        return f"{row.scale_min} to {row.scale_max}: {Truncator(row.instructions).chars(90)}"
    return ""


def select_usable_rows(user: Any, chosen: Experiment | None = None) -> dict[str, Any]:
    """Return the rows that a design may use now, by field. Include the rows that the draft `chosen` already uses."""

    def select(model: Any, usable: Q, field: str) -> Any:
        rows = model.objects.visible_to(user)
        if chosen is None:
            return rows.filter(usable)
        if field == "dataset":
            return rows.filter(usable | Q(pk=chosen.dataset_id))
        return rows.filter(usable | Q(pk__in=getattr(chosen, field).values("pk")))

    active = Q(is_active=True, endpoint__is_active=True)
    offered = ~Q(status__in=["archived", "imported"])
    return {
        "dataset": select(Dataset, Q(status="approved"), "dataset"),
        "language_models": select(LanguageModel, active, "language_models").select_related("endpoint"),
        "prompts": select(Prompt, Q(status="approved") | Q(status="draft", created_by=user), "prompts"),
        "samplers": select(Sampler, offered, "samplers"),
        "dimensions": select(Dimension, offered, "dimensions"),
    }


class ExperimentFileForm(forms.Form):
    """An experiment file, either uploaded or pasted."""

    file = forms.FileField(required=False, label="Experiment file", help_text="YAML")
    text = forms.CharField(
        required=False,
        label="Or paste the text",
        strip=False,
        max_length=MAX_FILE_BYTES,
        widget=forms.Textarea(attrs={"rows": 18, "class": "mono", "spellcheck": "false"}),
    )

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if file and file.size > MAX_FILE_BYTES:
            raise forms.ValidationError("The file is larger than 1 MB. Choose a smaller file.")
        return file

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        file, text = cleaned.get("file"), cleaned.get("text", "")
        if not self.errors and bool(file) == bool(text.strip()):
            raise forms.ValidationError("Either choose a file or paste its text.")
        if file:
            try:
                cleaned["text"] = file.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                self.add_error("file", "This file is not UTF-8 text. Save it as UTF-8 and try again.")
        return cleaned


class DuplicateForm(forms.Form):
    slug = forms.CharField(max_length=80, label="Name of the copy", help_text=SLUG_HELP)
