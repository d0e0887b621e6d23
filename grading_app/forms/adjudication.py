"""The form that adjudicates a disagreement."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.http import QueryDict

from grading_app.models.scales import Scale
from grading_app.raters.adjudication import MAX_REASON_LENGTH
from grading_app.raters.raters import Rater


class AdjudicationForm(forms.Form):
    """A score on one scale, with the ends of the scale, and the reason."""

    score = forms.FloatField()
    reason = forms.CharField(max_length=MAX_REASON_LENGTH, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, scale: Scale, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id=f"id_%s_{scale.low:g}_{scale.high:g}")
        self.scale = scale
        points = scale.list_points()
        choices = [(repr(value), f"{value:g} {name}".strip()) for value, name in points]
        score: Any = self.fields["score"]
        score.label = f"Score, {scale}"
        score.widget = (
            forms.Select(choices=[("", "Choose"), *choices])
            if points
            else forms.NumberInput(attrs={"min": scale.low, "max": scale.high, "step": "any"})
        )

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
