"""The scope of an analysis: measure, conditions, wave, category, exclusions. A page has it in its address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from datasets_app.models import Item
from grading_app.models import BlindReading
from grading_app.reports.frames import load_condition_labels
from grading_app.reports.score_matrix import EXCLUSIONS, Measure, list_measures
from runs_app.models import Experiment, Wave

FLAGGED = "flagged"
EXCLUSION_LABELS = {
    "truncated": "Truncated answers",
    "retried": "Answers after a retry",
    "refused": "Refused answers",
    "reused": "Answers from the response cache",
    FLAGGED: "Items with a flag",
}
MOST_ITEMS = 200  # Items that a scope may leave out one by one.
MISSING_EXCLUDED, MISSING_WRONG = "exclude", "wrong"


@dataclass(frozen=True)
class Scope:
    """The answers that an analysis covers.

    conditions: primary keys; empty for all. category: "" for all. without: primary keys of items that are left out.
    exclude: names of EXCLUSION_LABELS. missing: how answers without a score count. baseline: the condition that the
    others are compared with; None for all pairs. margin: the largest difference that counts as equivalent, in units of
    the measure; None without an equivalence test. blind: the blind reading whose letters stand for the names of models;
    it belongs to the reader and is no choice of the address.
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
    blind: BlindReading | None = None

    @property
    def excluded_answers(self) -> frozenset[str]:
        """The exclusions that concern single answers: names of EXCLUSIONS."""
        return self.exclude & set(EXCLUSIONS)

    @property
    def parameters(self) -> str:
        """The scope as parameters of an address, in one order: equal scopes have equal parameters."""
        data = QueryDict(mutable=True)
        data["measure"] = self.measure.key
        optional = {
            "wave": self.wave.number if self.wave else None,
            "category": self.category or None,
            "unreadable": self.missing if self.missing != MISSING_EXCLUDED else None,
            "baseline": self.baseline,
            "margin": self.margin,
        }
        for name, value in optional.items():
            if value is not None:
                data[name] = str(value)
        data.setlist("condition", [str(one) for one in sorted(self.conditions)])
        data.setlist("without", [str(one) for one in sorted(self.without)])
        data.setlist("exclude", sorted(self.exclude))
        return data.urlencode()


class ItemsField(forms.Field):
    """Primary keys of items, as often in the address as there are items."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> tuple[int, ...]:
        keys = [str(one) for one in value or []]
        if len(keys) > MOST_ITEMS or not all(key.isdecimal() and len(key) <= 18 for key in keys):
            raise forms.ValidationError(f"Name at most {MOST_ITEMS} items, each by the number in its address.")
        return tuple(dict.fromkeys(map(int, keys)))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(data)


class ScopeForm(forms.Form):
    """The choices that an experiment offers. Every field may be empty; then it does not restrict the scope."""

    measure = forms.ChoiceField(label="Measure", required=False)
    wave = forms.TypedChoiceField(label="Wave", required=False, coerce=int, empty_value=None)
    condition = forms.TypedMultipleChoiceField(
        label="Conditions", required=False, coerce=int, widget=forms.CheckboxSelectMultiple
    )
    category = forms.ChoiceField(label="Category", required=False)
    unreadable = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=[("", "Excluded"), (MISSING_WRONG, "Counted as wrong")],
    )
    exclude = forms.MultipleChoiceField(
        label="Exclude", required=False, choices=list(EXCLUSION_LABELS.items()), widget=forms.CheckboxSelectMultiple
    )
    without = ItemsField(label="Items left out", required=False)
    baseline = forms.TypedChoiceField(label="Baseline", required=False, coerce=int, empty_value=None)
    margin = forms.FloatField(label="Equivalence margin", required=False, min_value=0)

    def __init__(self, data: QueryDict, experiment: Experiment, blind: BlindReading | None = None) -> None:
        super().__init__(data)
        self.experiment, self.blind = experiment, blind
        self.measures = list_measures(experiment)
        self.labels = load_condition_labels(experiment, None, blind.assign_letters() if blind else None)
        self._offer("measure", [(one.key, one.label) for one in self.measures])
        self._offer("wave", [("", "All"), *((wave.number, str(wave)) for wave in experiment.waves.all())])
        self._offer("condition", list(self.labels.items()))
        self._offer("baseline", [("", "All pairs"), *self.labels.items()])
        categories = experiment.dataset.items.active().order_by("category").values_list("category", flat=True)
        self._offer("category", [("", "All"), *((name, name) for name in categories.distinct() if name)])

    def clean_without(self) -> tuple[int, ...]:
        keys: tuple[int, ...] = self.cleaned_data["without"]
        if keys and Item.objects.filter(pk__in=keys, dataset=self.experiment.dataset_id).count() < len(keys):
            raise forms.ValidationError("The dataset does not have all of these items.")
        return keys

    def _offer(self, name: str, choices: list[Any]) -> None:
        field: Any = self.fields[name]
        field.choices = choices

    def scope(self) -> Scope | None:
        """Return the scope; None for an invalid form or an experiment without a measure."""
        if not self.is_valid() or not self.measures:
            return None
        found = self.cleaned_data
        named = found["measure"] or self.measures[0].key
        wave = self.experiment.waves.filter(number=found["wave"]).first() if found["wave"] is not None else None
        return Scope(
            experiment=self.experiment,
            measure=next(one for one in self.measures if one.key == named),
            wave=wave,
            conditions=tuple(found["condition"]),
            category=found["category"],
            without=found["without"],
            exclude=frozenset(found["exclude"]),
            missing=found["unreadable"] or MISSING_EXCLUDED,
            baseline=found["baseline"],
            margin=found["margin"],
            blind=self.blind,
        )
