"""The forms of definitions: prompts, samplers and dimensions, and what a prompt is previewed on."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.db.models import QuerySet

from datasets_app.models import Dataset, Item
from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.web.form_fields import choose_number_fields, offer_rows
from runs_app.forms.fields import state_bounds
from runs_app.models import Dimension, LanguageModel, Prompt, Sampler

TEMPLATE = {"class": "mono", "spellcheck": "false", "data-template": ""}  # A text into which variables are inserted.
POINT = re.compile(r"\s*(-?[0-9]{1,10})\s*=\s*(.*\S)\s*\Z")


class MessagesField(BoundedJSONField):
    """A JSON field for turns that shows None as an empty field."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class PromptForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a prompt: a system and a user text, or all turns of a longer conversation."""

    system = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 3, "cols": 100, **TEMPLATE})
    )
    user = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 10, "cols": 100, **TEMPLATE})
    )
    messages = MessagesField(
        required=False,
        label="All turns",
        widget=forms.Textarea(attrs={"rows": 6, "cols": 100, **TEMPLATE}),
        help_text='Instead of both: [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...]',
    )

    class Meta:
        model = Prompt
        fields = ["name", "answer_format", "messages"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        texts = _split_turns(self.instance.messages)
        if texts is not None:
            self.initial = {**self.initial, "messages": None, **texts}

    def add_error(self, field: str | None, error: Any) -> None:
        """Add the error. Move an error of `messages` to `user` if the turns were not written as JSON."""
        problems = getattr(error, "error_dict", {})
        if "messages" in problems and not self.data.get("messages"):
            has_system = bool(str(self.data.get("system", "")).strip())
            for problem in problems.pop("messages"):
                is_of_system = has_system and str(problem.message).startswith("Turn 1")
                problems.setdefault("system" if is_of_system else "user", []).append(problem)
        super().add_error(field, error)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        # Browsers submit CRLF, but the hash must equal that of a file's text.
        texts = [(role, cleaned.get(role, "").replace("\r\n", "\n").strip("\n")) for role in ("system", "user")]
        turns = [{"role": role, "content": text} for role, text in texts if text.strip()]
        if turns and cleaned.get("messages"):
            self.add_error("messages", "Enter either a system and a user text or all turns, but not both.")
        elif turns:
            cleaned["messages"] = turns
        elif not cleaned.get("messages") and "messages" not in self.errors:
            self.add_error("user", "Enter a user text.")
        return cleaned


def _split_turns(messages: Any) -> dict[str, str] | None:
    """Return the texts by role if the prompt is a user turn, with or without a system turn before it; else None."""
    roles = [turn["role"] for turn in messages or []]
    if roles not in (["user"], ["system", "user"]):
        return None
    return {turn["role"]: turn["content"] for turn in messages}


class MappingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that stores an empty JSON field as its column's default (an empty mapping or list) instead of null."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        for name, field in self.fields.items():
            if isinstance(field, forms.JSONField) and name not in self.errors and cleaned.get(name) is None:
                cleaned[name] = self._meta.model._meta.get_field(name).get_default()
        return cleaned


class PointLabelsField(forms.CharField):
    """The labels of a scale's points, one per line: `1 = Very low`. The value is a mapping of points to labels."""

    def __init__(self, **options: Any) -> None:
        widget = forms.Textarea(attrs={"rows": 4, "cols": 60, "spellcheck": "false"})
        super().__init__(required=False, widget=widget, help_text="One per line: 1 = Very low", **options)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        points = sorted(value, key=lambda point: int(point) if str(point).lstrip("-").isdecimal() else 0)
        return "\n".join(f"{point} = {value[point]}" for point in points)

    def to_python(self, value: Any) -> Any:
        labels = {}
        for number, line in enumerate(str(value or "").splitlines(), 1):
            if not line.strip():
                continue
            if (match := POINT.match(line)) is None:
                raise forms.ValidationError(f"Line {number}: write a point, = and its label, such as 1 = Very low.")
            labels[str(int(match.group(1)))] = match.group(2)
        return labels

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((self.prepare_value(initial) or "") != "\n".join(str(data or "").splitlines()))


class SamplerForm(MappingsForm):
    """The settings of a call. An empty setting is left to the provider."""

    extra = BoundedJSONField(
        required=False,
        label="Other parameters",
        help_text='A JSON mapping, such as {"stop": ["END"]}',
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60, "class": "mono", "spellcheck": "false"}),
    )

    class Meta:
        model = Sampler
        fields = ["name", "temperature", "max_tokens", "top_p", "seed", "reasoning_effort", "extra"]
        field_classes = choose_number_fields(Sampler, fields)
        labels = {"max_tokens": "Longest answer", "top_p": "Top p"}
        help_texts = {
            "temperature": "0 to 2; 0 gives the most likely answer. Empty: the provider's default",
            "max_tokens": "Tokens. Empty: no limit",
            "reasoning_effort": "Such as low, medium or high, for models that reason",
        }


class DimensionForm(MappingsForm):
    """A question about each item, and the scale of its answer."""

    labels = PointLabelsField()

    class Meta:
        model = Dimension
        fields = ["name", "title", "instructions", "scale_min", "scale_max", "labels"]
        labels = {"scale_min": "Lowest point", "scale_max": "Highest point"}
        widgets = {"instructions": forms.Textarea(attrs={"rows": 4, "cols": 100})}
        help_texts = {"instructions": "What to rate, in the words that models and people read"}


class PromptPreviewForm(forms.Form):
    """The item on which the editor shows a prompt, and the model for a try."""

    dataset = forms.ModelChoiceField(Dataset.objects.none(), required=False, empty_label="Choose a dataset")
    item = forms.CharField(required=False, max_length=200, label="Item", help_text="Its key. Empty: the first item")
    dimension = forms.ModelChoiceField(Dimension.objects.none(), required=False, help_text="For rated items")
    model = forms.ModelChoiceField(LanguageModel.objects.none(), required=False, empty_label="Choose a model")
    sampler = forms.ModelChoiceField(Sampler.objects.none(), required=False, empty_label="Up to 2,048 tokens")

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_rows(self, "dataset", Dataset.objects.visible_to(user).exclude(status=Dataset.Status.ARCHIVED))
        offer_rows(self, "dimension", Dimension.objects.visible_to(user).offered())
        offer_try_rows(self, user)

    def find_item(self, dataset: Dataset | None, key: str) -> Item | None:
        """Return the item with this key, or the first one without a key; None if the dataset does not have it."""
        if dataset is None:
            return None
        items: QuerySet[Item] = dataset.items.active().select_related("image", "dataset").order_by("position", "pk")
        return (items.filter(key=key) if key else items).first()


def offer_try_rows(form: forms.Form, user: Any) -> None:
    """Let the form offer the models and samplers that may be called now."""
    models = LanguageModel.objects.visible_to(user).filter(is_active=True, endpoint__is_active=True)
    offer_rows(form, "model", models.select_related("endpoint").order_by("name"), lambda row: row.name)
    offer_rows(form, "sampler", Sampler.objects.visible_to(user).offered())
