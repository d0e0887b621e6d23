"""The forms of a draft design and of its preregistration. Status is never a field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django import forms
from django.db import transaction
from django.forms.utils import flatatt
from django.urls import reverse
from django.utils.html import format_html

from datasets_app.models import Item
from evalsite.lib.web.addresses import read_key
from evalsite.lib.web.form_fields import (
    choose_number_fields,
    get_choice_field,
    get_offered_rows,
    get_row_field,
    offer_rows,
)
from grading_app.models import Grader, Rubric
from runs_app.experiment_options import BUDGET, EXECUTION, GROUPS, OPTIONS, ExperimentOption, get_option, iterate_rows
from runs_app.forms.adaptive import AdaptiveForm
from runs_app.forms.draws import DrawForm
from runs_app.forms.experiments import SLUG_HELP, RowsField, SharingFields, describe_row, name_row, select_usable_rows
from runs_app.forms.fields import (
    RulesField,
    allow_empty_options,
    fill_empty_options,
    list_scorer_names,
    state_bounds,
)
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.parametric_spaces import NoSpaceRules, read_space_rules
from runs_app.planning.token_bounds import find_unfillable
from runs_app.scorers.scoring_rules import get_scorer_name, list_scorer_choices, read_rule

# The choices that the editor of the library can add to, each with what the person must be allowed to add.
ADDED_IN_EDITOR = {
    "prompts": ("prompt", "runs_app.add_prompt"),
    "samplers": ("sampler", "runs_app.add_sampler"),
    "dimensions": ("dimension", "runs_app.add_dimension"),
    "judges": ("judge", "grading_app.add_grader"),
}
EMPTY_CHOICES = {
    "dataset": ("No approved datasets yet.", "Show datasets", "dataset_list"),
    "language_models": ("No models yet. Operators add models.", "Show endpoints", "endpoint_list"),
}
TAG = '<input type="{}" name="{}" value="{}"{}>'
MAX_PLAN_TEXT = 20_000
MAX_PLAN_LINES = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkbox with its name, what tells it from the rest, and the reason why it does not fit the dataset."""

    box: Any
    name: str
    text: str
    reason: str

    @property
    def id(self) -> str:
        return str(self.box.data["attrs"]["id"])

    @property
    def tag(self) -> str:
        """Return the checkbox as its widget renders it. Templates of a widget for 2,000 choices take 150 ms."""
        data, attributes = self.box.data, flatatt(self.box.data["attrs"])
        return format_html(TAG, data["type"], data["name"], data["value"], attributes)


@dataclass(frozen=True, slots=True)
class ChoiceGroups:
    """The checkboxes of a field: those that fit the dataset, and the others."""

    field: Any
    noun: str
    fitting: list[Choice]
    unfitting: list[Choice]
    address: str = ""  # Of the editor that adds a choice; empty without the permission.

    @property
    def is_short(self) -> bool:
        """Return whether a choice takes one line: its settings stand beside its name."""
        return self.field.name in ("language_models", "samplers")


class ExperimentForm(SharingFields, forms.ModelForm):  # type: ignore[type-arg]
    """The form of a draft design.

    Only usable rows are offered: approved datasets and prompts, active models. The person's own draft prompts are
    offered, too; a curator must approve them before the launch.
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
    judges = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="They grade each answer as soon as it is there, on the budget of the experiment",
    )

    class Meta:
        model = Experiment
        fields = [
            "slug", "title", "description", "dataset", "language_models", "prompts", "samplers", "dimensions",
            "scorers",
            *(option.name for option in OPTIONS if option.is_in_forms),
        ]  # fmt: skip
        field_classes = choose_number_fields(Experiment, fields)
        help_texts = {"slug": SLUG_HELP}
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
            "hx-post": reverse("experiment_choices", args=["prompts"]),
            "hx-include": "#design",
            "hx-target": "#choices-prompts",
        }
        # Offer scorers without a parameter as checkboxes, and scorers with one as lines of text.
        get_choice_field(self, "scorers").choices = list_scorer_choices()
        self.fields["rules"].help_text = RulesField.usage()
        stored = self.instance.scorers
        self.initial["scorers"] = [scorer for scorer in stored if isinstance(scorer, str)]
        self.initial["rules"] = RulesField.format_stored(scorer for scorer in stored if not isinstance(scorer, str))
        allow_empty_options(self)
        chosen_judges = list(self.instance.graders)
        judges = Grader.objects.visible_to(user).in_use().filter(rubric__status=Rubric.Status.APPROVED)
        judges = judges.select_related("language_model", "rubric").order_by("name")
        offered = [(row.name, f"{row.name}: {row.language_model} by {row.rubric}") for row in judges]
        names = {name for name, _ in offered}
        get_choice_field(self, "judges").choices = [*offered, *((n, n) for n in chosen_judges if n not in names)]
        self.initial["judges"] = chosen_judges
        self.adaptive = AdaptiveForm(
            self.data if self.is_bound else None, stored=self.instance.adaptive, scorers=list_scorer_names()
        )
        self.drawing = DrawForm(self.data if self.is_bound else None, stored=self.instance.draws.get("models", {}))

    @property
    def option_rows(self) -> dict[str, list[list[forms.BoundField]]]:
        """Return the fields of the options by group and row."""
        rows = {
            group: [[self[name] for name in row if name in self.fields] for row in iterate_rows(group)]
            for group in GROUPS
        }
        return {group: [row for row in rows[group] if row] for group in GROUPS}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        cleaned["scorers"] = [*cleaned.get("scorers", []), *cleaned.get("rules", [])]
        fill_empty_options(self, cleaned, Experiment())
        self.check_people(cleaned)
        self.instance.graders = cleaned.get("judges", [])
        self._merge_errors(self.drawing, "Draw")
        self.instance.draws = self.drawing.merge_draws(self.instance.draws, cleaned.get("language_models", []))
        if not self.adaptive.is_valid():
            self._merge_errors(self.adaptive, "Points")
            return cleaned
        self.instance.adaptive = rule = self._read_stopping_rule(cleaned)
        if rule and rule["scorer"] not in map(get_scorer_name, cleaned["scorers"]):
            try:
                cleaned["scorers"].append(read_rule(rule["scorer"]).stored)
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

    def explain_empty_choices(self) -> None:
        """Say where rows of an empty choice come from. Call this after the choices were fetched."""
        for name, (text, label, url_name) in EMPTY_CHOICES.items():
            field = self.fields[name]
            if not [value for value, _ in field.widget.choices if value]:
                field.help_text = format_html('{} <a href="{}">{}</a>', text, reverse(url_name), label)

    def group_choices(self, name: str) -> ChoiceGroups:
        """Return the checkboxes of a field. A ticked prompt stays with those that fit.

        Call this after the choices were fetched.
        """
        reasons = self._find_unfillable() if name == "prompts" else {}
        groups: dict[bool, list[Choice]] = {True: [], False: []}
        for box in self[name].subwidgets:
            row = getattr(box.data["value"], "instance", None)
            reason = reasons.get(row.pk, "") if row is not None else ""
            label = name_row(row) if row is not None else str(box.choice_label)
            groups[not reason or box.data["selected"]].append(Choice(box, label, describe_row(row), reason))
        noun, permission = ADDED_IN_EDITOR.get(name, ("", ""))
        address = ""
        if noun and self.user.has_perm(permission):
            dataset = self._get_dataset_key()
            address = reverse("judge_new") if name == "judges" else reverse("library_new", args=[name])
            address += f"?dataset={dataset}" if dataset and name == "prompts" else ""
        return ChoiceGroups(self[name], noun, groups[True], groups[False], address)

    def _get_dataset_key(self) -> str:
        value = self["dataset"].value()
        key = str(getattr(value, "pk", value) or "")
        return "" if read_key(key) is None else key

    def _find_unfillable(self) -> dict[int, str]:
        """Return why the chosen dataset cannot fill each of the other prompts."""
        if not (key := self._get_dataset_key()):
            return {}
        items = Item.objects.active().filter(dataset__in=get_offered_rows(self, "dataset").filter(pk=key))
        return find_unfillable(list(get_offered_rows(self, "prompts")), items) if items.exists() else {}

    @property
    def measure_text(self) -> str:
        """Return the labels of the chosen scorers and the chosen judges."""
        labels = dict(get_choice_field(self, "scorers").choices)  # type: ignore[arg-type]
        scorers = [str(labels.get(name, name)).partition(":")[0] for name in self["scorers"].value() or ()]
        return ", ".join([*scorers, *(self["judges"].value() or ())]) or "none"

    @property
    def groups_with_errors(self) -> set[str]:
        """Return the groups of options in which a field has an error."""
        groups = {option.group for option in OPTIONS if option.name in self.errors}
        return groups | {"design"} if self.errors.keys() & {"scorers", "rules", "judges"} else groups

    @property
    def execution_text(self) -> str:
        """Return the first row of the options of the execution in one line, as the fields have them now."""
        values = self._read_options(next(iterate_rows(EXECUTION)))
        return ", ".join(f"{option.heading.lower()} {option.describe(value)}" for option, value in values)

    @property
    def launch_text(self) -> str:
        """Return what a launch runs and from which cost on it asks, as the fields have them now."""
        _, *rows = iterate_rows(BUDGET)
        parts = []
        for option, value in self._read_options(chain(*rows)):
            if option.choices:
                parts.append(option.describe(value).partition(": ")[2])
            elif option.is_fact and value is not None:
                parts.append(f"{option.heading.lower()} {option.describe(value)}")
        return ", ".join(parts)

    def _read_options(self, names: Iterable[str]) -> Iterator[tuple[ExperimentOption, Any]]:
        """Yield the options without an error, each with the value of its field or its default."""
        for name in names:
            if name in self.fields and name not in self.errors:
                option, value = get_option(name), self.fields[name].clean(self[name].value())
                yield option, option.default if value is None else value

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


def _make_area(label: str, help_text: str, *, required: bool = True, rows: int = 4) -> forms.CharField:
    return forms.CharField(
        label=label,
        help_text=help_text,
        required=required,
        max_length=MAX_PLAN_TEXT,
        widget=forms.Textarea(attrs={"rows": rows}),
    )


class PreregistrationForm(forms.Form):
    hypotheses = _make_area("Hypotheses", "One for each paragraph, with its direction", rows=6)
    primary_measure = forms.CharField(
        max_length=200, help_text="Name of the dimension, rule or judge that decides the hypotheses"
    )
    secondary_measures = _make_area("Secondary measures", "One name for each line", required=False, rows=3)
    contrasts = _make_area("Contrasts", "The comparisons that test the hypotheses, with tests and corrections")
    exclusions = _make_area("Exclusions", "Items and answers that do not count, and why. Write none if all count")
    stopping_rule = _make_area("Stopping rule", "When the collection of answers ends", rows=3)
    eligible_models = _make_area("Eligible models", "One name for each line. Others are exploratory", rows=4)

    def __init__(self, data: Any, experiment: Experiment) -> None:
        names = experiment.language_models.order_by("name").values_list("name", flat=True)
        initial = {
            "primary_measure": experiment.primary_measure or "",
            "eligible_models": "\n".join(names),
            "stopping_rule": "" if experiment.adaptive else "Every planned trial is asked.",
        }
        super().__init__(data, initial=initial)

    def clean_secondary_measures(self) -> list[str]:
        return self._read_lines("secondary_measures")

    def clean_eligible_models(self) -> list[str]:
        return self._read_lines("eligible_models")

    def _read_lines(self, name: str) -> list[str]:
        lines = [line.strip() for line in self.cleaned_data[name].splitlines() if line.strip()]
        if len(lines) > MAX_PLAN_LINES:
            raise forms.ValidationError(f"Enter at most {MAX_PLAN_LINES} lines.")
        return list(dict.fromkeys(lines))
