"""Forms of rubrics, of the answers on which a rubric is previewed and tested, and of item rubrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.urls import reverse

from datasets_app.models.datasets import slug_validator
from evalsite.lib.web.form_fields import add_create_link, choose_number_fields, offer_rows
from grading_app.grading.judging.graders import get_or_create_default_sampler
from grading_app.grading.judging.item_rubrics import RubricWriter
from grading_app.models import Rubric
from runs_app.forms.definitions import PromptForm, offer_try_rows
from runs_app.models import Experiment, ItemText, LanguageModel, Sampler, TextSet, Trial
from runs_app.models.texts import MAX_TEXT_LENGTH


class MappingLinesField(forms.CharField):
    """A field of mappings, one per line: name | number | description. Number and description are optional."""

    def __init__(self, *, number: str, **kwargs: Any) -> None:
        self.number = number
        widget = forms.Textarea(attrs={"rows": 5, "cols": 100, "class": "vLargeTextField", "spellcheck": "false"})
        super().__init__(required=False, widget=widget, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(self._format_part, value)) if isinstance(value, list) else value

    def _format_part(self, part: Mapping[str, Any]) -> str:
        number = part.get(self.number)
        number_text = "" if number is None else f"{number:g}" if isinstance(number, int | float) else str(number)
        return " | ".join([str(part.get("name", "")), number_text, str(part.get("description", ""))]).rstrip(" |")

    def to_python(self, value: Any) -> Any:
        lines = [line for line in str(value or "").splitlines() if line.strip()]
        return [self._parse_part(number, line) for number, line in enumerate(lines, 1)]

    def _parse_part(self, line_number: int, line: str) -> dict[str, Any]:
        name, number, description = ([piece.strip() for piece in line.split("|", 2)] + ["", ""])[:3]
        part: dict[str, Any] = {"name": name}
        if number:
            try:
                value = float(number)
            except ValueError:
                raise ValidationError(
                    f"Line {line_number}: the {self.number} must be a number, not {number!r}."
                ) from None
            part[self.number] = int(value) if value.is_integer() else value
        if description:
            part["description"] = description
        return part

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((self.prepare_value(initial) or "").split() != str(data or "").split())


class RubricForm(PromptForm):
    """The judge's instructions, and the scale, the criteria or the labels of its verdict."""

    criteria = MappingLinesField(
        number="weight",
        help_text="One per line: name | weight | description. Default weight: 1. Only with criteria.",
    )
    labels = MappingLinesField(
        number="score",
        help_text="One per line: name | score | description, at least two. Only with labels.",
    )

    class Meta(PromptForm.Meta):
        model = Rubric  # type: ignore[assignment]
        fields = ["name", "kind", "scale_min", "scale_max", "criteria", "labels", "messages"]
        field_classes = choose_number_fields(Rubric, fields)

    def clean(self) -> dict[str, Any]:
        """Clear the criteria or labels that the chosen kind does not use."""
        cleaned = super().clean()
        kind = cleaned.get("kind")
        for name, owner in (("criteria", Rubric.Kind.CRITERIA), ("labels", Rubric.Kind.LABEL)):
            if kind != owner and name not in self.errors:
                cleaned[name] = []
        return cleaned


class RubricPreviewForm(forms.Form):
    """The stored answer on which the editor shows a rubric, for comparisons also the other one; a model for a try."""

    experiment = forms.ModelChoiceField(Experiment.objects.none(), empty_label="Choose an experiment")
    trial = forms.IntegerField(
        required=False, min_value=1, max_value=2**62, label="Answer", help_text="Trial number. Empty: any"
    )
    rival = forms.IntegerField(
        required=False, min_value=1, max_value=2**62, label="Other answer", help_text="Trial number. Empty: any"
    )
    text_set = forms.ModelChoiceField(
        TextSet.objects.none(), required=False, label="Item rubrics", help_text="The texts for {{item_rubric}}"
    )
    model = forms.ModelChoiceField(LanguageModel.objects.none(), required=False, empty_label="Choose a model")
    sampler = forms.ModelChoiceField(Sampler.objects.none(), required=False, empty_label="Up to 2,048 tokens")

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        answered = Experiment.objects.visible_to(user).filter(runs__n_done__gt=0, runs__condition__stage="generate")
        offer_rows(self, "experiment", answered.distinct())
        offer_rows(self, "text_set", TextSet.objects.visible_to(user))
        offer_try_rows(self, user)

    def fetch_answers(self, *, in_pairs: bool) -> list[Trial]:
        """Return the answer, and `in_pairs` another answer to the same item. Raise ValueError if there is none.

        The form must be valid.
        """
        runs = self.cleaned_data["experiment"].answer_runs
        done: Any = Trial.objects.visible_to(self.user).filter(run__in=runs, status=Trial.Status.DONE)
        answers = done.select_related("item__image", "item__dataset", "dimension", "run__condition__model")
        subject = self._fetch_answer("trial", answers)
        if not in_pairs:
            return [subject]
        others = answers.filter(item_id=subject.item_id, dimension_id=subject.dimension_id).exclude(pk=subject.pk)
        by_others = others.exclude(run_id=subject.run_id)
        return [subject, self._fetch_answer("rival", by_others if by_others.exists() else others)]

    def _fetch_answer(self, name: str, rows: Any) -> Trial:
        key = self.cleaned_data.get(name)
        answer: Trial | None = (rows.filter(pk=key) if key else rows.with_text().order_by("run_id", "pk")).first()
        if answer is None:
            subject = f"no answered trial {key}" if key else "no other answer" if name == "rival" else "no answer"
            suffix = "" if name == "trial" else " to the same item"
            raise ValueError(f"The experiment has {subject}{suffix}.")
        return answer

    def fetch_item_text(self, trial: Trial) -> str | None:
        """Return the text of the chosen set for the trial's item, or None. The form must be valid."""
        text_set = self.cleaned_data.get("text_set")
        rows = text_set.texts.filter(item_id=trial.item_id) if text_set else ItemText.objects.none()
        stored: str | None = rows.values_list("text", flat=True).first()
        return stored


class RubricTestForm(forms.Form):
    """The experiment and the model for a test of a rubric: five real calls on the experiment's budget."""

    experiment = forms.ModelChoiceField(Experiment.objects.none(), help_text="Its budget pays for the calls")
    model = forms.ModelChoiceField(LanguageModel.objects.none())
    sampler = forms.ModelChoiceField(Sampler.objects.none(), required=False, empty_label="Temperature 0")
    texts = forms.ModelChoiceField(
        TextSet.objects.none(), label="Item rubrics", help_text="The approved texts for {{item_rubric}}"
    )
    confirmed = forms.BooleanField(required=False, label="I have seen what this can cost")

    def __init__(self, *args: Any, user: Any, with_texts: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: Any = self.fields
        fields["texts"].queryset = TextSet.objects.visible_to(user).filter(status=TextSet.Status.APPROVED)
        if not with_texts:
            del fields["texts"]
        answered = Experiment.objects.editable_by(user).filter(runs__n_done__gt=0, runs__condition__stage="generate")
        fields["experiment"].queryset = answered.distinct()
        fields["model"].queryset = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True)
        fields["sampler"].queryset = Sampler.objects.offered()


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
