"""The forms of a snapshot and of participant-style data."""

from __future__ import annotations

from typing import Any

from django import forms

from grading_app.publish.export.wide_tables import (
    LARGEST_SEED,
    MAX_ITEMS,
    PARTICIPANT_ITEMS,
    PARTICIPANT_SEED,
    WideTableError,
    build_participants,
)
from runs_app.models import Experiment


class SnapshotForm(forms.Form):
    label = forms.CharField(max_length=80, required=False, help_text="For example: submission")
    reason = forms.CharField(max_length=500, label="Reason", help_text="The purpose; stored in the study card")


class ParticipantsForm(forms.Form):
    """The options of participant-style data, sent by GET to the address of a file."""

    n_items = forms.IntegerField(
        label="Items",
        min_value=1,
        max_value=MAX_ITEMS,
        initial=PARTICIPANT_ITEMS,
        help_text="Drawn in proportion to the categories",
    )
    seed = forms.IntegerField(
        min_value=0, max_value=LARGEST_SEED, initial=PARTICIPANT_SEED, help_text="The same seed draws the same items"
    )

    def __init__(self, data: Any, experiment: Experiment) -> None:
        """data: the parameters of an address. Without these options, the form has its defaults."""
        super().__init__(data if any(name in data for name in self.base_fields) else None)
        self.experiment = experiment

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                build_participants(self.experiment, {name: str(value) for name, value in cleaned.items()})
            except WideTableError as error:
                self.add_error("n_items", f"{error.reason[:1].upper()}{error.reason[1:]}.")
        return cleaned
