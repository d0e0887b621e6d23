"""The forms of the admin for JSON columns, and the form of the prompt preview."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from datasets_app.models import Dataset, Item
from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.web.choice_fields import offer_rows
from runs_app.forms.fields import state_bounds
from runs_app.models import Dimension, Prompt


class MessagesField(BoundedJSONField):
    """A JSON field for turns that shows None as an empty field."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class PromptForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a prompt: a system and a user text, or all turns of a longer conversation."""

    system = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 5, "cols": 100}))
    user = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 12, "cols": 100}))
    messages = MessagesField(
        required=False,
        label="All turns",
        widget=forms.Textarea(attrs={"rows": 6, "cols": 100}),
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
            problems["user"] = problems.pop("messages")
        super().add_error(field, error)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        texts = [(role, _normalise_line_ends(cleaned.get(role, ""))) for role in ("system", "user")]
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


def _normalise_line_ends(text: str) -> str:
    """Return the text with LF line ends. Browsers submit CRLF, but the hash must equal that of a file's text."""
    return text.replace("\r\n", "\n").strip("\n")


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


class PreviewForm(forms.Form):
    """The choice of the item and dimension to preview."""

    dataset = forms.ModelChoiceField(Dataset.objects.none())
    item = forms.CharField(required=False, max_length=200, help_text="Key of the item. Empty: the first item")
    dimension = forms.ModelChoiceField(Dimension.objects.none(), required=False)

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_rows(self, "dataset", Dataset.objects.visible_to(user))
        offer_rows(self, "dimension", Dimension.objects.visible_to(user))

    def find_item(self) -> Item | None:
        """Return the chosen item, or None if the dataset does not have it. The form must be valid."""
        items: QuerySet[Item] = self.cleaned_data["dataset"].items.active().select_related("image")
        key = self.cleaned_data["item"]
        return (items.filter(key=key) if key else items).first()
