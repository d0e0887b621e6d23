"""Forms of the admin, for what a plain field would leave to be written as JSON."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from datasets_app.models import Dataset, Item
from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.web.choice_fields import offer_rows
from runs_app.models import Dimension, Prompt


class Conversation(BoundedJSONField):
    """Turns as JSON, shown as nothing where there is nothing to show."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class PromptForm(forms.ModelForm):  # type: ignore[type-arg]
    """A system and a user text, which is what most prompts are; or all turns of a longer conversation."""

    system = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 5, "cols": 100}))
    user = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 12, "cols": 100}))
    messages = Conversation(
        required=False,
        label="All turns",
        widget=forms.Textarea(attrs={"rows": 6, "cols": 100}),
        help_text='Instead of the two: [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...]',
    )

    class Meta:
        model = Prompt
        fields = ["name", "answer_format", "messages"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        texts = _short_form(self.instance.messages)
        if texts is not None:
            self.initial = {**self.initial, "messages": None, **texts}

    def add_error(self, field: str | None, error: Any) -> None:
        """What is wrong with the turns is said where they were written."""
        problems = getattr(error, "error_dict", {})
        if "messages" in problems and not self.data.get("messages"):
            problems["user"] = problems.pop("messages")
        super().add_error(field, error)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        said = [(role, _with_plain_line_ends(cleaned.get(role, ""))) for role in ("system", "user")]
        turns = [{"role": role, "content": text} for role, text in said if text.strip()]
        if turns and cleaned.get("messages"):
            self.add_error("messages", "Give either a system and a user text, or all turns; not both.")
        elif turns:
            cleaned["messages"] = turns
        elif not cleaned.get("messages") and "messages" not in self.errors:
            self.add_error("user", "A prompt needs a user text.")
        return cleaned


def _short_form(messages: Any) -> dict[str, str] | None:
    """The texts of a prompt that has one user turn and at most a system turn before it."""
    roles = [turn["role"] for turn in messages or []]
    if roles not in (["user"], ["system", "user"]):
        return None
    return {turn["role"]: turn["content"] for turn in messages}


def _with_plain_line_ends(text: str) -> str:
    """A browser sends line ends as CR LF; the same text from a file must have the same hash."""
    return text.replace("\r\n", "\n").strip("\n")


class MappingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """JSON that was left empty is the default of its column: an empty mapping or list, never null."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        for name, field in self.fields.items():
            if isinstance(field, forms.JSONField) and name not in self.errors and cleaned.get(name) is None:
                cleaned[name] = self._meta.model._meta.get_field(name).get_default()
        return cleaned


class PreviewForm(forms.Form):
    """Which item, on which dimension, to show the messages of."""

    dataset = forms.ModelChoiceField(Dataset.objects.none())
    item = forms.CharField(required=False, max_length=200, help_text="Its key; empty for the first")
    dimension = forms.ModelChoiceField(Dimension.objects.none(), required=False)

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_rows(self, "dataset", Dataset.objects.visible_to(user))
        offer_rows(self, "dimension", Dimension.objects.visible_to(user))

    def chosen_item(self) -> Item | None:
        """Of a valid form; None where the dataset has no such item."""
        items: QuerySet[Item] = self.cleaned_data["dataset"].items.active().select_related("image")
        key = self.cleaned_data["item"]
        return (items.filter(key=key) if key else items).first()
