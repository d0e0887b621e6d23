"""The forms of ratings by people: a queue, its raters' ratings, and the adjudication of a disagreement.

The status is never a field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.validators import ProhibitNullCharactersValidator
from django.http import QueryDict

from datasets_app.models import Dataset
from evalsite.lib.permissions import RATER
from evalsite.lib.web.form_fields import NumberField, offer_rows
from grading_app.grading.judging.grade_conditions import find_rubric_problems, select_usable
from grading_app.grading.rating.questions import RaterQuestion, build_questions
from grading_app.models import RatingQueue, Rubric
from grading_app.models.rating import MAX_INVITATIONS
from grading_app.models.rubrics import Scale
from grading_app.results.raters.disagreements import MAX_REASON_LENGTH
from grading_app.results.raters.raters import Rater
from runs_app.models import Condition, Dimension, Experiment, TextSet
from runs_app.models.conditions import load_labels

MAX_CHECKS = 100
CHECKS_BY_RUBRIC = ". With a rubric: 1 is pass and 0 is fail for a criterion; labels are numbered from 1"


class ChecksField(forms.CharField):
    """A field of attention checks, one per line: the item's key, =, and the ratings that pass, separated by commas."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "mono", "placeholder": "choose-seven = 7"})

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return "\n".join(f"{key} = {', '.join(map(str, passing))}" for key, passing in value.items())

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        # The validator of the field itself sees the returned mapping, not this text.
        ProhibitNullCharactersValidator()(text)
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > MAX_CHECKS:
            raise forms.ValidationError(f"Enter at most {MAX_CHECKS} attention checks.")
        checks: dict[str, list[int]] = {}
        for line in lines:
            key, ratings = _parse_check(line)
            if key in checks:
                raise forms.ValidationError(f"{key} appears twice. Remove one line.")
            checks[key] = ratings
        return checks

    def has_changed(self, initial: Any, data: Any) -> bool:
        return json.dumps(initial) != json.dumps(data)


class ItemKeysField(forms.CharField):
    """A field of item keys, one per line."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "mono"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        ProhibitNullCharactersValidator()(text)
        return list(dict.fromkeys(key for line in text.splitlines() if (key := line.strip())))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return json.dumps(initial or []) != json.dumps(self.to_python(data))


def _parse_check(line: str) -> tuple[str, list[int]]:
    key, _, text = line.rpartition("=")
    try:
        ratings = [int(part) for part in text.split(",")]
    except ValueError:
        ratings = []
    if not key.strip() or not ratings:
        raise forms.ValidationError(
            f"“{line.strip()[:80]}” is not valid. Write: item key = whole numbers, with commas."
        )
    return key.strip(), ratings


class QueueForm(forms.ModelForm):  # type: ignore[type-arg]
    """A draft of a queue, over an approved dataset, on dimensions that are not archived."""

    dimensions = forms.ModelMultipleChoiceField(
        queryset=Dimension.objects.none(), widget=forms.CheckboxSelectMultiple, help_text="Frozen when the queue opens"
    )
    attention_checks = ChecksField(
        required=False,
        help_text="One per line: item key = ratings that pass, with commas. Checks are not counted as ratings",
    )
    only_items = ItemKeysField(
        label="Items", required=False, help_text="Keys of the items to rate, one per line. Empty: all items"
    )

    class Meta:
        model = RatingQueue
        fields = [
            "name", "title", "instructions", "dataset", "only_items", "dimensions", "raters_wanted", "items_per_rater",
            "one_dimension_per_rater", "in_blocks", "practice_items", "attention_checks",
        ]  # fmt: skip
        widgets = {"instructions": forms.Textarea(attrs={"rows": 6})}
        help_texts = {"name": "Part of the address that raters see. Lower-case letters, digits, - and _"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "dataset" in self.fields:
            usable = Dataset.objects.filter(status=Dataset.Status.APPROVED)
            offer_rows(self, "dataset", usable)
        dimensions = Dimension.objects.offered()
        offer_rows(self, "dimensions", dimensions, label=_dimension_label)

    def clean_dimensions(self) -> Any:
        dimensions = self.cleaned_data["dimensions"]
        if len({dimension.name for dimension in dimensions}) < len(dimensions):
            raise forms.ValidationError("Choose one version of each dimension.")
        return dimensions

    def clean(self) -> dict[str, Any]:
        entered = super().clean() or self.cleaned_data
        dataset = self._get_dataset(entered)
        if dataset and entered.get("only_items"):
            keys = entered["only_items"]
            active_keys = set(dataset.items.active().filter(key__in=keys).values_list("key", flat=True))
            if missing := [key for key in keys if key not in active_keys]:
                more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
                self.add_error("only_items", f"{dataset} has no active item {', '.join(missing[:5])}{more}.")
        if dataset and {"dimensions", "attention_checks"} <= set(entered):
            self._check_attention_checks(
                dataset, build_questions(entered["dimensions"], entered.get("rubric")), entered["attention_checks"]
            )
        if dataset and {"practice_items", "attention_checks"} <= set(entered):
            n_reserved = (entered["practice_items"] or 0) + len(entered["attention_checks"])
            if n_reserved >= dataset.active_count:
                self.add_error("practice_items", "No items are left to rate. Use fewer practice items and checks.")
        return entered

    def _get_dataset(self, entered: dict[str, Any]) -> Dataset | None:
        return entered.get("dataset")

    def _check_attention_checks(
        self, dataset: Dataset, questions: list[RaterQuestion], checks: dict[str, list[int]]
    ) -> None:
        active_keys = set(dataset.items.active().filter(key__in=checks).values_list("key", flat=True))
        for key, ratings in checks.items():
            if key not in active_keys:
                self.add_error("attention_checks", f"{dataset} has no item {key}.")
            elif not all(question.accepts(rating) for question in questions for rating in ratings):
                self.add_error(
                    "attention_checks", f"{key}: ratings must be on the scale of every dimension or criterion."
                )


class AnswerQueueForm(QueueForm):
    """A draft of a queue over answers of an experiment: the answers, and the dimensions or rubric for rating them."""

    conditions = forms.ModelMultipleChoiceField(
        queryset=Condition.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="Answers of",
        help_text="Empty: all conditions. Raters do not see which model answered",
    )

    class Meta(QueueForm.Meta):
        fields = [
            "name", "title", "instructions", "conditions", "only_items", "sample_items", "answers_each", "sample_seed",
            "dimensions", "rubric", "text_set", "raters_wanted", "items_per_rater", "one_dimension_per_rater",
            "in_blocks", "practice_items", "attention_checks",
        ]  # fmt: skip
        labels = {"raters_wanted": "Raters per answer", "items_per_rater": "Answers per rater"}
        help_texts = {
            **QueueForm.Meta.help_texts,
            "raters_wanted": "Number of people who rate each answer on each dimension",
            "practice_items": "Every rater starts with one answer to each first item. These ratings are not counted",
            "in_blocks": "Otherwise raters rate an answer on all dimensions before the next answer",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        experiment = self.instance.experiment
        labels = load_labels([experiment.pk])
        offer_rows(self, "conditions", experiment.answer_conditions, label=lambda condition: labels[condition.pk])
        self.fields["dimensions"].required = False
        self.fields["dimensions"].help_text = "Frozen when the queue opens. You can choose a rubric instead"
        rubrics = select_usable(Rubric, self.instance.experiment).exclude(kind=Rubric.Kind.WRITER)
        offer_rows(self, "rubric", rubrics, label=rubric_label)
        texts = select_usable(TextSet, self.instance.experiment).filter(dataset=self.instance.experiment.dataset_id)
        offer_rows(self, "text_set", texts)
        self.fields["attention_checks"].help_text += CHECKS_BY_RUBRIC

    def clean(self) -> dict[str, Any]:
        entered = super().clean()
        rubric = entered.get("rubric")
        if rubric is None and "rubric" in entered and not entered.get("dimensions"):
            self.add_error("dimensions", "Choose dimensions or a rubric.")
        if rubric is not None:
            for field, problem in self._find_problems(rubric, entered):
                self.add_error(field, problem)
        return entered

    def _find_problems(self, rubric: Rubric, entered: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if entered.get("dimensions"):
            yield "rubric", "Choose dimensions or a rubric, not both."
        if entered.get("one_dimension_per_rater"):
            yield "one_dimension_per_rater", "Not possible with a rubric: each rater must rate all of its criteria."
        if rubric.kind == Rubric.Kind.PAIRWISE and entered.get("attention_checks"):
            yield (
                "attention_checks",
                "Not possible for pairs, because they are shown in random order.",
            )
        experiment, texts = self.instance.experiment, entered.get("text_set")
        for problem in find_rubric_problems(experiment, rubric, texts, user_kind="queue", name=entered.get("name", "")):
            yield "text_set", f"{problem}."

    def _get_dataset(self, entered: dict[str, Any]) -> Dataset | None:
        experiment: Experiment = self.instance.experiment
        return experiment.dataset


def rubric_label(rubric: Any) -> str:
    return f"{rubric} · {rubric.get_kind_display().lower()}"


def _dimension_label(dimension: Any) -> str:
    return f"{dimension} · {dimension.title or dimension.name}, {dimension.scale_min} to {dimension.scale_max}"


class ReasonForm(forms.Form):
    reason = forms.CharField(max_length=500, required=False)


class AliasForm(forms.Form):
    alias = forms.CharField(
        max_length=40,
        required=False,
        help_text="The name that the organisers see. It need not be your real name. Empty: a number",
    )


class InviteForm(forms.Form):
    count = forms.IntegerField(label="Number of links", min_value=1, max_value=MAX_INVITATIONS, initial=1)


class AssignForm(forms.Form):
    user: forms.ModelChoiceField[Any] = forms.ModelChoiceField(queryset=None, label="Rater")

    def __init__(self, queue: RatingQueue, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        users = get_user_model().objects.filter(is_active=True, groups__name=RATER)
        candidates = users.exclude(rating_assignments__queue=queue).exclude(rating_assignments__by_link=True)
        offer_rows(self, "user", candidates.order_by("username"))


class AdjudicationForm(forms.Form):
    """A score on one scale, with the ends of the scale, and the reason."""

    score = NumberField()
    reason = forms.CharField(max_length=MAX_REASON_LENGTH, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, scale: Scale, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id=f"id_%s_{scale.low:g}_{scale.high:g}")
        self.scale = scale
        points = scale.list_points()
        choices = [(repr(value), f"{value:g} {name}".strip()) for value, name in points]
        score: Any = self.fields["score"]
        score.label = f"Score, {scale}"
        if points:
            score.widget = forms.Select(choices=[("", "Choose"), *choices])

    @classmethod
    def from_post(cls, data: QueryDict) -> AdjudicationForm:
        """Return the form bound to posted data, on the scale in the data."""
        low, high = (_parse_number(data.get(name, "")) for name in ("scale_min", "scale_max"))
        return cls(Scale(low, high) if low < high else Scale(0, 1), data)


def _parse_number(text: str) -> float:
    try:
        number = float(text[:30])
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def list_scales(raters: list[Rater]) -> list[Scale]:
    """Return the distinct scales of these raters. A scale with named points replaces the same scale without names."""
    scales: dict[tuple[float, float], Scale] = {}
    for rater in raters:
        if rater.scale is not None:
            ends = rater.scale.ends
            if ends not in scales or len(rater.scale.points) > len(scales[ends].points):
                scales[ends] = rater.scale
    return list(scales.values())
