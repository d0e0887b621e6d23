"""The forms of a draft design, as fields or as a file. Status is never a field."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html

from datasets_app.models import Dataset, Item
from evalsite.lib.web.choice_fields import (
    add_create_link,
    get_choice_field,
    get_offered_rows,
    get_row_field,
    offer_rows,
)
from runs_app.experiment_options import GROUPS, OPTIONS, iterate_rows
from runs_app.forms.adaptive import AdaptiveForm
from runs_app.forms.audience import SharingFields
from runs_app.forms.draws import DrawForm
from runs_app.forms.fields import (
    RulesField,
    allow_empty_options,
    fill_empty_options,
    list_scorer_names,
    state_bounds,
)
from runs_app.grading_interface import get_scorer_name, grading, list_scorer_choices
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.space_rules import NoSpaceRules, read_space_rules
from runs_app.planning.token_bounds import find_unfillable

MAX_FILE_BYTES = 1_000_000


class RowsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """The rows of one axis of the design, as checkboxes, each with a hint that distinguishes it."""

    widget = forms.CheckboxSelectMultiple

    def label_from_instance(self, row: Any) -> str:
        return f"{row} · {hint}" if (hint := _describe_row(row)) else str(row)


def _describe_row(row: Any) -> str:
    if isinstance(row, LanguageModel):
        return f"{row.model} at {row.endpoint}" + ("" if row.prices.is_known else ", price unknown")
    if isinstance(row, Prompt):
        return row.get_answer_format_display()
    if isinstance(row, Sampler):
        return ", ".join(f"{name} {value}" for name, value in row.content.items()) or "the provider's own settings"
    if isinstance(row, Dimension):
        return f"{row.title or row.name}, {row.scale_min} to {row.scale_max}"
    return ""


EMPTY_CHOICE_HINTS = {
    "dataset": ("No approved datasets yet.", "Show datasets", "dataset_list"),
    "language_models": ("No models yet. Operators add models.", "Show endpoints", "endpoint_list"),
    "prompts": ("No approved prompts yet.", "Create prompt", "admin:runs_app_prompt_add"),
    "samplers": ("No samplers yet.", "Create sampler", "admin:runs_app_sampler_add"),
    "dimensions": ("Only for rated items. No dimensions yet.", "Create dimension", "admin:runs_app_dimension_add"),
}
CREATE_LINKS = {
    "prompts": ("Create another prompt", "runs_app.add_prompt"),
    "samplers": ("Create another sampler", "runs_app.add_sampler"),
    "dimensions": ("Create another dimension", "runs_app.add_dimension"),
}


class ExperimentForm(SharingFields, forms.ModelForm):  # type: ignore[type-arg]
    """The form of a draft design.

    Only usable rows are offered: approved datasets and prompts, active models.
    """

    language_models = RowsField(queryset=LanguageModel.objects.none(), label="Models")
    prompts = RowsField(queryset=Prompt.objects.none())
    samplers = RowsField(queryset=Sampler.objects.none())
    dimensions = RowsField(queryset=Dimension.objects.none(), required=False, help_text="Only for rated items")
    scorers = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="Rules that grade the stored answers. You can add scorers later",
    )
    rules = RulesField(required=False)

    class Meta:
        model = Experiment
        fields = [
            "slug", "title", "description", "dataset", "language_models", "prompts", "samplers", "dimensions",
            "scorers",
            *(option.name for option in OPTIONS if option.is_in_forms),
        ]  # fmt: skip
        help_texts = {"slug": "Lower-case letters, digits, - and _. Part of the page address"}
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)
        self.user = user
        chosen = self.instance if self.instance.pk else None
        for name, rows in select_usable_rows(user, chosen).items():
            offer_rows(self, name, rows)
        self.offer_people(self.instance, exclude=None if chosen else user)
        get_row_field(self, "dataset").empty_label = "Choose a dataset"
        # The prompts that the chosen dataset cannot fill are folded.
        self.fields["dataset"].widget.attrs |= {
            "hx-post": reverse("experiment_prompts"),
            "hx-include": "#design",
            "hx-target": "#prompt-choices",
        }
        self._offer_scorers()
        allow_empty_options(self)
        self.adaptive = AdaptiveForm(
            self.data if self.is_bound else None, stored=self.instance.adaptive, scorers=list_scorer_names()
        )
        self.drawing = DrawForm(self.data if self.is_bound else None, stored=self.instance.draws.get("models", {}))

    @property
    def option_rows(self) -> dict[str, list[list[forms.BoundField]]]:
        """Return the fields of the options by group and row."""
        rows = {group: [self._get_option_fields(row) for row in iterate_rows(group)] for group in GROUPS}
        return {group: [row for row in rows[group] if row] for group in GROUPS}

    def _get_option_fields(self, names: list[str]) -> list[forms.BoundField]:
        return [self[name] for name in names if name in self.fields]

    def _offer_scorers(self) -> None:
        """Offer scorers without a parameter as checkboxes, and scorers with one as lines of text."""
        get_choice_field(self, "scorers").choices = list_scorer_choices()
        self.fields["rules"].help_text = RulesField.usage()
        stored = self.instance.scorers
        self.initial["scorers"] = [scorer for scorer in stored if isinstance(scorer, str)]
        self.initial["rules"] = RulesField.format_stored(scorer for scorer in stored if not isinstance(scorer, str))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        cleaned["scorers"] = [*cleaned.get("scorers", []), *cleaned.get("rules", [])]
        fill_empty_options(self, cleaned, Experiment())
        self.check_people(cleaned)
        self._merge_errors(self.drawing, "Draw")
        self.instance.draws = self.drawing.merge_draws(self.instance.draws, cleaned.get("language_models", []))
        if not self.adaptive.is_valid():
            self._merge_errors(self.adaptive, "Points")
            return cleaned
        self.instance.adaptive = rule = self._read_stopping_rule(cleaned)
        if rule and rule["scorer"] not in map(get_scorer_name, cleaned["scorers"]):
            try:
                cleaned["scorers"].append(grading().parse_scorer(rule["scorer"]))
            except ValueError as problem:
                if "rules" not in self.errors:
                    self.add_error("rules", f"Adaptive stopping uses {rule['scorer']}. {problem}")
        return cleaned

    def _read_stopping_rule(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return the content of `adaptive`: the fields of its form, or the rules of the dataset's space."""
        dataset = cleaned.get("dataset")
        if not self.adaptive.wants_dataset_rules or dataset is None:
            return self.adaptive.content
        try:
            return read_space_rules(dataset)
        except NoSpaceRules as problem:
            self.add_error(None, [f"Use the dataset's stopping rules: {problem}."])
            return {}

    def _merge_errors(self, part: forms.Form, name: str) -> None:
        for field, errors in part.errors.items():
            label = part.fields[field].label or field if field in part.fields else name
            self.add_error(None, [f"{label}: {error}" for error in errors])

    @property
    def draw_lines(self) -> Any:
        """Return the lines of the draw, compared with the selected models, or None without a draw."""
        selected = {str(getattr(value, "pk", value)) for value in self["language_models"].value() or ()}
        rows = get_offered_rows(self, "language_models")
        return self.drawing.compare_lines(row.name for row in rows if str(row.pk) in selected)

    def add_create_links(self) -> None:
        """Link each choice to the page that creates such rows, and explain empty choices. This fetches the choices."""
        for name, (text, label, url_name) in EMPTY_CHOICE_HINTS.items():
            field = self.fields[name]
            if not [value for value, _ in field.widget.choices if value]:
                field.help_text = format_html('{} <a href="{}">{}</a>', text, reverse(url_name), label)
            elif name in CREATE_LINKS:
                label, permission = CREATE_LINKS[name]
                add_create_link(self, name, self.user, permission, reverse(url_name), label)

    def group_prompts(self) -> dict[str, list[Any]]:
        """Return the prompts' checkboxes: those that the dataset can fill, and the others, each with its reason.

        A ticked prompt stays with the first. Call this after the choices were fetched.
        """
        value = self["dataset"].value()
        reasons: dict[int, str] = {}
        if str(getattr(value, "pk", value) or "").isdecimal():
            items = Item.objects.active().filter(dataset__in=get_offered_rows(self, "dataset").filter(pk=value))
            reasons = find_unfillable(list(get_offered_rows(self, "prompts")), items) if items.exists() else {}
        groups: dict[str, list[Any]] = {"fitting": [], "unfitting": []}
        for box in self["prompts"].subwidgets:
            reason = reasons.get(int(str(box.data["value"])), "")
            groups["unfitting" if reason and not box.data["selected"] else "fitting"].append((box, reason))
        return groups

    def save(self, commit: bool = True) -> Experiment:
        if not self.instance.pk:
            self.instance.owner = self.user
        with transaction.atomic():
            if commit and self.instance.pk:
                self.instance.save(update_fields=["draws"])  # `draws` is not a form field, so it must be saved by name.
            experiment: Experiment = super().save(commit)
            if commit:
                experiment.share(self.cleaned_data["sharing"], self.cleaned_data["shared_with"], by=self.user)
        return experiment


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
        "prompts": select(Prompt, Q(status="approved"), "prompts"),
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
    slug = forms.CharField(max_length=80, label="Name of the copy", help_text=ExperimentForm.Meta.help_texts["slug"])
