"""The raters and units that an agreement page compares, read from the parameters of its address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.db.models import prefetch_related_objects
from django.http import QueryDict

from grading_app.results.raters.raters import (
    ANSWERS,
    CRITERION,
    PAIRS,
    Rater,
    expand_groups,
    list_raters,
    list_unit_choices,
    parse_criterion,
)
from runs_app.models import Experiment
from runs_app.models.conditions import make_condition_labels

MAX_RATERS = 1_000
# Fields whose choices depend on the units. The parameter `of` names the units for which they were chosen.
UNIT_FIELDS = ("rater", "condition", "dimension")
DEFAULT_RATERS = 6  # The number of raters that are compared by default, besides references.
MAX_REPETITIONS = 20  # The maximum number of single ratings behind a mean that are loaded to count equal ratings.


@dataclass(frozen=True)
class RatingSelection:
    """The raters to compare, and the units.

    chosen: the selected raters, which may be groups. raters: the same, with groups replaced by their people.
    references: compared with the raters, but not with each other.
    repetitions: the number of single ratings behind a model's mean; 0 if a mean is a single rating.
    """

    experiment: Experiment
    units: str
    chosen: list[Rater]
    raters: list[Rater]
    filters: Mapping[str, Any]  # wave, condition, dimension: keys; category: a text. None or "" for all.
    as_shares: bool = False  # Values are rescaled: 0 is the low end and 1 the high end of the rater's scale.
    n_left_out: int = 0  # The number of raters beyond MAX_RATERS.
    references: tuple[Rater, ...] = ()
    repetitions: int = 0

    @property
    def is_filtered(self) -> bool:
        return any(self.filters.values())

    @property
    def covers_answers(self) -> bool:
        return covers_answers(self.units)

    @property
    def all_raters(self) -> list[Rater]:
        """The raters and the references."""
        return [*self.raters, *self.references]

    @property
    def singles(self) -> dict[str, list[Rater]]:
        """The single ratings behind each model's mean, as raters, by the key of the mean."""
        return {
            rater.key: [replace(rater, key=f"{rater.key}-{number}") for number in range(1, self.repetitions + 1)]
            for rater in self.raters
            if rater.key[0] == "c" and self.repetitions
        }

    @property
    def in_pairs(self) -> bool:
        """True if the units are pairs of answers, of which raters choose the better one."""
        return self.units == PAIRS

    @property
    def criterion(self) -> str:
        """The criterion on which answers are compared; "" for the total score."""
        return parse_criterion(self.units)[1] if self.units.startswith(CRITERION) else ""

    @property
    def key_parts(self) -> list[Any]:
        """The values that identify this selection, for a cache key."""
        keys = [rater.key for rater in self.chosen]
        people = [rater.key for rater in self.all_raters]
        return [self.experiment.pk, self.units, keys, people, dict(self.filters), self.as_shares]

    @property
    def scale(self) -> tuple[float, float] | None:
        """The ends of the raters' common scale; None if it is unknown or the scales differ."""
        if self.as_shares:
            return 0.0, 1.0
        ends = {rater.scale.ends if rater.scale else None for rater in self.raters}
        return ends.pop() if len(ends) == 1 else None

    @property
    def scales_differ(self) -> bool:
        """True if the raters' scales differ, so that equal values mean different things."""
        ends = {rater.scale.ends if rater.scale else None for rater in self.all_raters}
        return len(ends) > 1 and not self.as_shares


def covers_answers(units: str) -> bool:
    return units == ANSWERS or units.startswith(CRITERION)


def _choose_units(experiment: Experiment, units: list[str], min_raters: int) -> tuple[str, list[Rater]]:
    """Return the first kind of units with enough raters, and its raters; or else the first with any rater."""
    fallback: tuple[str, list[Rater]] | None = None
    for name in units:
        raters = list_raters(experiment, name)
        if len(raters) >= min_raters:
            return name, raters
        if raters and fallback is None:
            fallback = name, raters
    return fallback or (units[0], [])


class RatingSelectionForm(forms.Form):
    """The form of a selection. It offers the experiment's choices; any other value in an address is an error."""

    units = forms.ChoiceField(label="Unit", required=False)
    rater = forms.MultipleChoiceField(label="Raters", required=False, widget=forms.CheckboxSelectMultiple)
    condition = forms.TypedChoiceField(label="Answers of", required=False, coerce=int, empty_value=None)
    wave = forms.TypedChoiceField(label="Wave", required=False, coerce=int, empty_value=None)
    dimension = forms.TypedChoiceField(label="Dimension", required=False, coerce=int, empty_value=None)
    category = forms.CharField(label="Category", required=False, max_length=200)
    scale = forms.ChoiceField(
        label="Scores", required=False, choices=[("", "Original scale"), ("share", "Rescaled to 0–1")]
    )

    def __init__(self, data: QueryDict, experiment: Experiment) -> None:
        prefetch_related_objects([experiment], "dimensions", "waves")  # Several of the choices need them.
        units = list_unit_choices(experiment)
        requested = str(data.get("units", ""))
        candidates = [requested] if requested in dict(units) else [name for name, _ in units]
        self.experiment = experiment
        self.rated_units, self.offered_raters = _choose_units(
            experiment, candidates, min_raters=1 if data.getlist("rater") else 2
        )
        parameters = data.copy()
        if parameters.get("of", requested) != requested:
            for name in UNIT_FIELDS:
                parameters.setlist(name, [])
        parameters["units"] = requested or self.rated_units
        super().__init__(parameters)
        self._set_choices("units", units)
        self._set_choices("rater", [(rater.key, rater.label) for rater in self.offered_raters])
        conditions = self.experiment.answer_conditions.select_related("model", "prompt", "sampler").order_by("pk")
        filters_answers = covers_answers(self.rated_units) or self.rated_units == PAIRS
        choices_by_field = {
            "condition": list(make_condition_labels(list(conditions)).items()) if filters_answers else [],
            "wave": [(wave.pk, str(wave)) for wave in self.experiment.waves.all()],
            "dimension": [(row.pk, row.name) for row in experiment.dimensions.all()] if filters_answers else [],
        }
        for name, choices in choices_by_field.items():
            self._set_choices(name, [("", "All"), *choices])
        if self.rated_units == PAIRS:
            self.fields["condition"].label = "First answer by"

    def _set_choices(self, name: str, choices: list[Any]) -> None:
        field: Any = self.fields[name]
        field.choices = choices

    @property
    def filter_fields(self) -> list[Any]:
        """The bound fields of the filters that offer a choice, for the page."""
        fields: Any = self.fields
        choices = [name for name in ("condition", "wave", "dimension") if len(fields[name].choices) > 2]
        scale = () if self.rated_units == PAIRS else ("scale",)
        return [self[name] for name in (*choices, "category", *scale)]

    def get_selection(self) -> RatingSelection | None:
        """Return the selection; None if the address has an invalid value."""
        if not self.is_valid():
            return None
        if requested := self.cleaned_data["rater"]:
            chosen = [rater for rater in self.offered_raters if rater.key in requested]
        else:
            # The first raters on the most common scale, and the references on it. Models' first ratings ("s") are
            # compared only on request.
            ends = {rater.key: rater.scale.ends if rater.scale else None for rater in self.offered_raters}
            raters = [rater for rater in self.offered_raters if rater.key[0] != "s" and not rater.is_reference]
            scales = Counter(ends[rater.key] for rater in raters).most_common(1)
            common = scales[0][0] if scales else None
            chosen = [rater for rater in raters if ends[rater.key] == common][:DEFAULT_RATERS]
            references = [rater for rater in self.offered_raters if rater.is_reference and rater.scale]
            chosen += [rater for rater in references if ends[rater.key] == common]
        filters = {name: self.cleaned_data.get(name) for name in ("wave", "condition", "dimension", "category")}
        as_shares = self.cleaned_data["scale"] == "share"
        expanded = expand_groups([rater for rater in chosen if not rater.is_reference])
        compared, n_left_out = expanded[:MAX_RATERS], len(expanded[MAX_RATERS:])
        # The single ratings behind a model's mean: 0 if no mean is compared, or if a mean is a single rating.
        repetitions = 0
        if any(rater.key[0] == "c" for rater in compared):
            total = self.experiment.samples * (1 if filters.get("wave") else len(self.experiment.waves.all()))
            repetitions = min(total, MAX_REPETITIONS) if total > 1 else 0
        return RatingSelection(
            self.experiment, self.rated_units, chosen, compared, filters, as_shares, n_left_out,
            tuple(rater for rater in chosen if rater.is_reference), repetitions,
        )  # fmt: skip
