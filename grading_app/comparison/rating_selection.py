"""The selected ratings of an agreement page: raters and units, read from an address that holds every choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.http import QueryDict

from grading_app.comparison.raters import (
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

MOST_RATERS = 1_000
# Choices that do not apply to other units. The parameter `of` names the units they were made for.
UNIT_FIELDS = ("rater", "condition", "dimension")
DEFAULT_RATERS = 6  # The number of raters that are compared by default, besides references.
MOST_REPETITIONS = 20  # Single ratings of a model and an item that are read to count equal ratings.


@dataclass(frozen=True)
class RatingSelection:
    """The raters to compare, and the units.

    `chosen` may hold groups; in `raters` they are expanded to people. `references` are compared with the raters, not
    among them. repetitions: the number of single ratings behind a model's mean; 0 if a mean is a single rating.
    """

    experiment: Experiment
    units: str
    chosen: list[Rater]
    raters: list[Rater]
    filters: Mapping[str, Any]  # wave, condition, dimension: keys; category: a text. None or "" for all.
    as_shares: bool = False  # Rescale each value to its rater's scale: 0 is the low end, 1 is the high end.
    n_left_out: int = 0  # The number of people beyond the limit of one comparison.
    references: tuple[Rater, ...] = ()
    repetitions: int = 0

    @property
    def covers_answers(self) -> bool:
        return covers_answers(self.units)

    @property
    def all_raters(self) -> list[Rater]:
        """The raters and the references."""
        return [*self.raters, *self.references]

    @property
    def singles(self) -> dict[str, list[Rater]]:
        """The single ratings behind each model's mean, as raters of their own, by the key of the mean."""
        return {
            rater.key: [replace(rater, key=f"{rater.key}-{at}") for at in range(1, self.repetitions + 1)]
            for rater in self.raters
            if rater.key[0] == "c" and self.repetitions
        }

    @property
    def in_pairs(self) -> bool:
        """True if a unit is a pair of answers, of which raters choose the better one."""
        return self.units == PAIRS

    @property
    def criterion(self) -> str:
        """The criterion on which answers are compared; "" for the whole score."""
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


def _choose_units(experiment: Experiment, units: list[str], enough: int) -> tuple[str, list[Rater]]:
    """Return the first of these units with enough raters, and its raters; or else the first with any rater."""
    alone: tuple[str, list[Rater]] | None = None
    for name in units:
        raters = list_raters(experiment, name)
        if len(raters) >= enough:
            return name, raters
        if raters and alone is None:
            alone = name, raters
    return alone or (units[0], [])


class RatingSelectionForm(forms.Form):
    """The choices that this experiment offers. Any other value in an address is an error."""

    units = forms.ChoiceField(label="Unit", required=False)
    rater = forms.MultipleChoiceField(label="Raters", required=False, widget=forms.CheckboxSelectMultiple)
    condition = forms.TypedChoiceField(label="Answers of", required=False, coerce=int, empty_value=None)
    wave = forms.TypedChoiceField(label="Wave", required=False, coerce=int, empty_value=None)
    dimension = forms.TypedChoiceField(label="Dimension", required=False, coerce=int, empty_value=None)
    category = forms.CharField(label="Category", required=False, max_length=200)
    scale = forms.ChoiceField(
        label="Scores", required=False, choices=[("", "As they were given"), ("share", "From 0 to 1 of each scale")]
    )

    def __init__(self, data: QueryDict, experiment: Experiment) -> None:
        units = list_unit_choices(experiment)
        wanted = str(data.get("units", ""))
        candidates = [wanted] if wanted in dict(units) else [name for name, _ in units]
        self.experiment = experiment
        self.rated_units, self.offered_raters = _choose_units(
            experiment, candidates, enough=1 if data.getlist("rater") else 2
        )
        parameters = data.copy()
        if parameters.get("of", wanted) != wanted:
            for name in UNIT_FIELDS:
                parameters.setlist(name, [])
        parameters["units"] = wanted or self.rated_units
        super().__init__(parameters)
        self._set_choices("units", units)
        self._set_choices("rater", [(rater.key, rater.label) for rater in self.offered_raters])
        self._set_answer_choices()

    def _set_answer_choices(self) -> None:
        """Set the choices of the fields that filter answers."""
        conditions = self.experiment.conditions.filter(stage="generate").select_related("model", "prompt", "sampler")
        of_answers = covers_answers(self.rated_units) or self.rated_units == PAIRS
        dimensions = self.experiment.dimensions.values_list("pk", "name") if of_answers else []
        choices_by_field = {
            "condition": [(one.pk, one.label) for one in conditions] if of_answers else [],
            "wave": [(wave.pk, str(wave)) for wave in self.experiment.waves.all()],
            "dimension": list(dimensions),
        }
        for name, choices in choices_by_field.items():
            self._set_choices(name, [("", "All"), *choices])
        if self.rated_units == PAIRS:
            self.fields["condition"].label = "The first is of"

    def _set_choices(self, name: str, choices: list[Any]) -> None:
        field: Any = self.fields[name]
        field.choices = choices

    @property
    def filter_fields(self) -> list[Any]:
        """The bound fields that filter the rated units and leave a choice, for the page."""
        fields: Any = self.fields
        choices = [name for name in ("condition", "wave", "dimension") if len(fields[name].choices) > 2]
        scale = () if self.rated_units == PAIRS else ("scale",)
        return [self[name] for name in (*choices, "category", *scale)]

    def selection(self) -> RatingSelection | None:
        """Return the selection; None if the address asks for something that does not exist."""
        if not self.is_valid():
            return None
        wanted = self.cleaned_data["rater"]
        chosen = (
            [rater for rater in self.offered_raters if rater.key in wanted] if wanted else self._choose_default_raters()
        )
        filters = {name: self.cleaned_data.get(name) for name in ("wave", "condition", "dimension", "category")}
        as_shares = self.cleaned_data["scale"] == "share"
        raters = expand_groups([rater for rater in chosen if not rater.is_reference])
        compared, n_left_out = raters[:MOST_RATERS], len(raters[MOST_RATERS:])
        references = tuple(rater for rater in chosen if rater.is_reference)
        repetitions = self._count_repetitions(filters) if any(rater.key[0] == "c" for rater in compared) else 0
        return RatingSelection(
            self.experiment, self.rated_units, chosen, compared, filters, as_shares, n_left_out, references, repetitions
        )

    def _count_repetitions(self, filters: Mapping[str, Any]) -> int:
        """Return how many single ratings a model's mean may have, up to a limit; 0 if it has one."""
        waves = 1 if filters.get("wave") else self.experiment.waves.count()
        repetitions = self.experiment.samples * waves
        return min(repetitions, MOST_REPETITIONS) if repetitions > 1 else 0

    def _choose_default_raters(self) -> list[Rater]:
        """Return the first raters of the most common scale, and the references on it.

        A first rating of a model is included only on request.
        """
        raters = [rater for rater in self.offered_raters if not rater.key.startswith("s") and not rater.is_reference]
        scales = Counter(rater.scale.ends if rater.scale else None for rater in raters)
        most_common = scales.most_common(1)[0][0] if scales else None
        first = [rater for rater in raters if (rater.scale.ends if rater.scale else None) == most_common][
            :DEFAULT_RATERS
        ]
        references = [rater for rater in self.offered_raters if rater.is_reference and rater.scale]
        return [*first, *(rater for rater in references if rater.scale and rater.scale.ends == most_common)]
