"""Forms of experiments: their audience, their file, the changes and the extension of a launched design.

`experiment set` uses the form of a launched experiment, too.
"""

from __future__ import annotations

from copy import copy
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import Truncator

from datasets_app.models import Dataset
from evalsite.lib.history import Actor, record_changes
from evalsite.lib.web.form_fields import choose_number_fields, get_choice_field, offer_rows
from runs_app.experiment_options import OPTIONS
from runs_app.forms.fields import allow_empty_options, fill_empty_options, state_bounds
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Run, Sampler
from runs_app.models.designs import Versioned
from runs_app.planning.extension import Extension, ExtensionPreview

PEOPLE_FIELD = "shared_with"


class SharingFields(forms.Form):
    """The two sharing fields, used by the draft form and by the page that shares an experiment."""

    sharing = forms.ChoiceField(label="Shared with", choices=Experiment.AUDIENCES, initial=Experiment.Sharing.PRIVATE)
    shared_with = forms.ModelMultipleChoiceField(
        User.objects.none(),
        label="People",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text='They can read the experiment and its dataset. Only for "Chosen people" above',
    )

    def offer_people(self, experiment: Experiment, *, exclude: Any = None) -> None:
        people = experiment.find_shareable_people()
        offer_rows(self, PEOPLE_FIELD, people.exclude(pk=exclude.pk) if exclude is not None else people)
        if experiment.pk:
            self.initial.update({"sharing": experiment.audience, PEOPLE_FIELD: list(experiment.shared_with.all())})

    def check_people(self, cleaned: dict[str, Any]) -> None:
        """Add an error if the chosen people contradict the chosen audience."""
        people, audience = cleaned.get(PEOPLE_FIELD, []), cleaned.get("sharing")
        if audience == Experiment.PEOPLE and not people and PEOPLE_FIELD not in self.errors:
            self.add_error(PEOPLE_FIELD, "Choose at least one person, or another option for sharing.")
        elif audience and audience != Experiment.PEOPLE and people:
            self.add_error(PEOPLE_FIELD, 'Choose "Chosen people" above, or clear the selection of people.')


class ShareForm(SharingFields):
    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")

    def __init__(self, *args: Any, experiment: Experiment, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.experiment = experiment
        self.offer_people(experiment)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        self.check_people(cleaned)
        return cleaned

    def save(self, *, by: Any) -> bool:
        data = self.cleaned_data
        return self.experiment.share(data["sharing"], data[PEOPLE_FIELD], by=by, reason=data["reason"])


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


CHANGEABLE = [option for option in OPTIONS if option.changes]


class LaunchedExperimentForm(forms.ModelForm):  # type: ignore[type-arg]
    """The editable fields of a launched experiment. None of them changes the messages to a model."""

    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")

    class Meta:
        model = Experiment
        fields = ["title", "description", *(option.name for option in CHANGEABLE)]
        field_classes = choose_number_fields(Experiment, fields)
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
