"""The audience of an experiment: only its owner, chosen people, or the group with its viewers."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from evalsite.lib.web.choice_fields import offer_rows
from runs_app.models import Experiment

PEOPLE_FIELD = "shared_with"


class SharingFields(forms.Form):
    """The two sharing fields, used by the draft form and by the page that shares an experiment."""

    sharing = forms.ChoiceField(label="Shared with", choices=Experiment.AUDIENCES, initial=Experiment.Sharing.PRIVATE)
    shared_with = forms.ModelMultipleChoiceField(
        User.objects.none(),
        label="People",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text='They can read the experiment and its dataset. Only for "Chosen people" above',
    )

    def offer_people(self, experiment: Experiment, *, exclude: Any = None) -> None:
        people = experiment.find_shareable_people()
        offer_rows(self, PEOPLE_FIELD, people.exclude(pk=exclude.pk) if exclude is not None else people)
        if experiment.pk:
            self.initial.update({"sharing": experiment.audience, PEOPLE_FIELD: list(experiment.shared_with.all())})

    def check_people(self, cleaned: dict[str, Any]) -> None:
        """Add an error if the chosen people contradict the chosen audience."""
        people, audience = cleaned.get(PEOPLE_FIELD, []), cleaned.get("sharing")
        if audience == Experiment.PEOPLE and not people and PEOPLE_FIELD not in self.errors:
            self.add_error(PEOPLE_FIELD, "Choose at least one person, or another option for sharing.")
        elif audience and audience != Experiment.PEOPLE and people:
            self.add_error(PEOPLE_FIELD, 'Choose "Chosen people" above, or clear the selection of people.')


class ShareForm(SharingFields):
    reason = forms.CharField(max_length=500, required=False, help_text="Stored in the history")

    def __init__(self, *args: Any, experiment: Experiment, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.experiment = experiment
        self.offer_people(experiment)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        self.check_people(cleaned)
        return cleaned

    def save(self, *, by: Any) -> bool:
        data = self.cleaned_data
        return self.experiment.share(data["sharing"], data[PEOPLE_FIELD], by=by, reason=data["reason"])
