"""The fields of a random draw of models, which are part of the experiment form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core import signing
from pydantic import ValidationError

from evalsite.lib.web.form_fields import get_offered_rows
from runs_app.experiment_files.model_draw import (
    DEFAULT_BANDS,
    DEFAULT_SEED,
    MAX_DRAWN_MODELS,
    Draw,
    DrawError,
    DrawSpec,
)
from runs_app.experiment_files.row_builder import draw_models
from runs_app.forms.fields import split_names
from runs_app.models import LanguageModel
from runs_app.planning.drawn_models import DrawLines, compare_draw

SALT = "runs_app.draw"
FIELD_NAMES = {"from": "selectors"}  # Keys of an experiment file whose fields have another name here.
STRATA_CHOICES = [
    ("price", "Price bands"),
    ("provider", "Provider"),
    ("family", "Family"),
    ("none", "Nothing"),
]


class DrawForm(forms.Form):
    """The settings of a draw. A hidden field holds the finished draw, signed so that the browser cannot change it."""

    draw = forms.IntegerField(min_value=1, max_value=MAX_DRAWN_MODELS, required=False, label="How many")
    seed = forms.IntegerField(min_value=0, max_value=2**63 - 1, required=False, initial=DEFAULT_SEED)
    by = forms.ChoiceField(
        choices=STRATA_CHOICES, required=False, label="Strata by", help_text="At least one model each"
    )
    bands = forms.IntegerField(
        min_value=1,
        max_value=MAX_DRAWN_MODELS,
        required=False,
        label="Bands",
        help_text=f"Number of price bands with equally many models. Empty: {DEFAULT_BANDS}",
    )
    selectors = forms.CharField(
        max_length=2000,
        required=False,
        label="From",
        help_text="Comma-separated names, or endpoint:NAME, provider:NAME, family:NAME, price:known, sees:images. "
        "Empty: all active models",
    )
    pinned = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any, *, stored: dict[str, Any]) -> None:
        initial = {name: value for name, value in stored.items() if name in ("draw", "seed", "by", "bands")}
        initial |= {"selectors": ", ".join(stored.get("from", ())), "pinned": sign_draw(stored) if stored else ""}
        super().__init__(data, prefix="draw", initial=initial)

    @property
    def is_used(self) -> bool:
        return bool(self["draw"].value())

    def clean_pinned(self) -> Draw | None:
        text = self.cleaned_data["pinned"]
        try:
            return Draw.model_validate(signing.loads(text, salt=SALT)) if text else None
        except (signing.BadSignature, ValidationError):
            raise forms.ValidationError("The draw is no longer valid. Draw again.") from None

    @property
    def pinned_draw(self) -> Draw | None:
        if self.is_bound:
            return self.cleaned_data.get("pinned") if self.is_valid() else None
        text = self.initial["pinned"]
        return Draw.model_validate(signing.loads(text, salt=SALT)) if text else None

    def compare_lines(self, used: Iterable[str]) -> DrawLines | None:
        """Return the lines of the draw, compared with the models that are in use now; None without a draw."""
        return compare_draw("", draw, set(used)) if (draw := self.pinned_draw) else None

    def merge_draws(self, stored: dict[str, Any], chosen: Iterable[LanguageModel]) -> dict[str, Any]:
        """Return the draws to store. The draw of models stays while it contains at least one chosen model."""
        others = {name: value for name, value in stored.items() if name != "models"}
        draw = self.pinned_draw
        if draw is None or not {model.name for model in chosen} & set(draw.drawn):
            return others
        return {"models": draw.content} | others

    def draw_models(self, visible: Any) -> Draw | None:
        """Return a new draw from the visible models, or None after adding the error to its field."""
        if not self.is_valid():
            return None
        names = ("draw", "seed", "by", "bands")
        settings = {name: value for name in names if (value := self.cleaned_data[name]) not in (None, "")}
        settings["from"] = split_names(self.cleaned_data["selectors"])
        try:
            return draw_models(DrawSpec.model_validate(settings), visible)
        except ValidationError as error:
            problem = error.errors()[0]
            key = str(problem["loc"][0]) if problem["loc"] else "bands"
            self._add_draw_error(key, "Enter the number of models." if problem["type"] == "missing" else problem["msg"])
        except DrawError as error:
            self._add_draw_error(error.key, str(error))
        return None

    def _add_draw_error(self, key: str, message: str) -> None:
        field = key.partition("[")[0]
        self.add_error(FIELD_NAMES.get(field, field), message.removeprefix("Value error, "))


def redraw_models(form: Any) -> Any:
    """Return the form with the models of a new draw selected, or the same form with its errors."""
    draw = form.drawing.draw_models(get_offered_rows(form, "language_models"))
    if draw is None:
        return form
    data = form.data.copy()
    rows = get_offered_rows(form, "language_models").filter(name__in=draw.drawn)
    data.setlist("language_models", [str(key) for key in rows.values_list("pk", flat=True)])
    data["draw-pinned"] = sign_draw(draw.content)
    return type(form)(data, instance=form.instance, user=form.user)


def sign_draw(content: dict[str, Any]) -> str:
    """Return the signed draw for the hidden field."""
    return signing.dumps(content, salt=SALT, compress=True)
