"""The scope of an analysis: measure, conditions, wave, category and exclusions, as parameters of an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from datasets_app.models import Item
from evalsite.lib.web.form_fields import NamedChoiceField, NumberField, list_choices_in_errors
from grading_app.models import BlindReading
from grading_app.results.frames import load_condition_labels
from grading_app.results.scores import EXCLUSIONS, Measure, list_measures, match_measure
from runs_app.models import Experiment, Wave

FLAGGED = "flagged"
EXCLUSION_LABELS = {
    "truncated": "Truncated answers",
    "retried": "Answers after a retry",
    "refused": "Refused answers",
    "reused": "Answers from the response cache",
    FLAGGED: "Items with a flag",
}
MAX_EXCLUDED_ITEMS = 200  # The maximum number of items that a scope may exclude one by one.
MISSING_EXCLUDED, MISSING_WRONG = "exclude", "wrong"
MISSING_CHOICES = [("", "Excluded"), (MISSING_WRONG, "Counted as the lowest score")]
FAMILY_OF_MEASURES = "measures"


@dataclass(frozen=True)
class Scope:
    """The answers that an analysis covers.

    conditions: primary keys; empty for all. category: "" for all.
    without: primary keys of excluded items. exclude: keys of EXCLUSION_LABELS.
    missing: how answers without a score count: MISSING_EXCLUDED or MISSING_WRONG.
    baseline: the condition that is compared with all others; None for all pairs.
    margin: the largest difference that counts as equivalent, in units of the measure; None without equivalence test.
    family: the tests that p is corrected over: "" for the table's own, FAMILY_OF_MEASURES for those of all measures.
    blind: the reader's blind reading, whose letters replace the names of models. It is not part of the address.
    """

    experiment: Experiment
    measure: Measure
    wave: Wave | None = None
    conditions: tuple[int, ...] = ()
    category: str = ""
    without: tuple[int, ...] = ()
    exclude: frozenset[str] = frozenset()
    missing: str = MISSING_EXCLUDED
    baseline: int | None = None
    margin: float | None = None
    family: str = ""
    blind: BlindReading | None = None

    @property
    def excluded_answers(self) -> frozenset[str]:
        """The exclusions of single answers: keys of EXCLUSIONS."""
        return self.exclude & set(EXCLUSIONS)

    @property
    def parameters(self) -> str:
        """The scope as a query string in a fixed order. Equal scopes have equal query strings."""
        data = QueryDict(mutable=True)
        data["measure"] = self.measure.key
        optional = {
            "wave": self.wave.number if self.wave else None,
            "category": self.category or None,
            "missing": self.missing if self.missing != MISSING_EXCLUDED else None,
            "baseline": self.baseline,
            "margin": self.margin,
            "family": self.family or None,
        }
        for name, value in optional.items():
            if value is not None:
                data[name] = str(value)
        data.setlist("condition", [str(key) for key in sorted(self.conditions)])
        data.setlist("without", [str(key) for key in sorted(self.without)])
        data.setlist("exclude", sorted(self.exclude))
        return data.urlencode()


class ItemsField(forms.Field):
    """Primary keys of items, one parameter of the address for each item."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> tuple[int, ...]:
        keys = [str(text) for text in value or []]
        if len(keys) > MAX_EXCLUDED_ITEMS or not all(key.isdecimal() and len(key) <= 18 for key in keys):
            raise forms.ValidationError(f"Enter at most {MAX_EXCLUDED_ITEMS} items, each as the number in its address.")
        return tuple(dict.fromkeys(map(int, keys)))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(data)


class ScopeForm(forms.Form):
    """The form of a scope. All fields are optional. An empty field does not restrict the scope."""

    measure = NamedChoiceField(label="Measure", required=False)
    wave = NamedChoiceField(label="Wave", required=False)
    condition = forms.TypedMultipleChoiceField(
        label="Conditions", required=False, coerce=int, widget=forms.CheckboxSelectMultiple
    )
    category = forms.ChoiceField(label="Category", required=False)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=MISSING_CHOICES,
    )
    exclude = forms.MultipleChoiceField(
        label="Exclude", required=False, choices=list(EXCLUSION_LABELS.items()), widget=forms.CheckboxSelectMultiple
    )
    without = ItemsField(label="Items left out", required=False)
    baseline = forms.TypedChoiceField(label="Baseline", required=False, coerce=int, empty_value=None)
    margin = NumberField(label="Equivalence margin", required=False, min_value=0)
    family = forms.ChoiceField(
        label="Correct p over",
        required=False,
        choices=[("", "Each measure"), (FAMILY_OF_MEASURES, "All measures")],
    )

    def __init__(self, data: QueryDict, experiment: Experiment, blind: BlindReading | None = None) -> None:
        super().__init__(data)
        self.experiment, self.blind = experiment, blind
        self.measures = list_measures(experiment)
        self.labels = load_condition_labels(experiment, None, blind.assign_letters() if blind else None)
        self._set_choices("measure", [(measure.key, measure.label) for measure in self.measures])
        fields: dict[str, Any] = self.fields
        fields["measure"].find_key = lambda name: match_measure(self.measures, name).key
        waves = [(str(wave.number), str(wave)) for wave in experiment.waves.all()]
        self._set_choices("wave", [("", "All"), *waves])
        if len(waves) < 2:
            fields["wave"].widget = forms.HiddenInput()
        fields["wave"].find_key = lambda name: str(experiment.find_wave(name).number)
        self._set_choices("condition", list(self.labels.items()))
        self._set_choices("baseline", [("", "All pairs"), *self.labels.items()])
        categories = experiment.dataset.items.active().order_by("category").values_list("category", flat=True)
        self._set_choices("category", [("", "All"), *((name, name) for name in categories.distinct() if name)])
        list_choices_in_errors(self)

    def clean_without(self) -> tuple[int, ...]:
        keys: tuple[int, ...] = self.cleaned_data["without"]
        if keys and Item.objects.filter(pk__in=keys, dataset=self.experiment.dataset_id).count() < len(keys):
            raise forms.ValidationError("Some of these items are not in the dataset.")
        return keys

    def _set_choices(self, name: str, choices: list[Any]) -> None:
        field: Any = self.fields[name]
        field.choices = choices

    def get_scope(self) -> Scope | None:
        """Return the scope; None if the form is invalid or the experiment has no measure."""
        if not self.is_valid() or not self.measures:
            return None
        data = self.cleaned_data
        measure_key = data["measure"] or self.measures[0].key
        return Scope(
            experiment=self.experiment,
            measure=next(measure for measure in self.measures if measure.key == measure_key),
            wave=self.experiment.find_wave(data["wave"]) if data["wave"] else None,
            conditions=tuple(data["condition"]),
            category=data["category"],
            without=data["without"],
            exclude=frozenset(data["exclude"]),
            missing=data["missing"] or MISSING_EXCLUDED,
            baseline=data["baseline"],
            margin=data["margin"],
            family=data["family"],
            blind=self.blind,
        )
