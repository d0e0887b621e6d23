"""The sides of a comparison: the answers of one condition or of all, in one wave or in all waves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grading_app.models import BlindReading
from grading_app.reports.frames import make_condition_labels
from grading_app.reports.score_matrix import Measure, list_measures
from runs_app.models import Condition, Experiment, Run, Wave

ALL = "all"
REFERENCE = re.compile(r"(?P<slug>[a-z0-9][a-z0-9_-]*)(?::(?P<condition>[0-9]{1,18}|all)(?::(?P<wave>[0-9]{1,8}))?)?\Z")


@dataclass(frozen=True)
class ConditionSide:
    """The answers of one condition, or of all conditions of an experiment, in one wave or in all.

    wave: None for all waves. label: the condition's label within its experiment. letters: of the reader's blind
    reading, by the keys of models; None if the reader sees names.
    """

    experiment: Experiment
    conditions: tuple[Condition, ...]
    wave: Wave | None
    label: str
    is_whole: bool = False
    letters: Mapping[int, str] | None = field(default=None, compare=False)

    @property
    def reference(self) -> str:
        """The side in addresses: `experiment:condition` or `experiment:all`, with `:wave` for one wave."""
        parts = [self.experiment.slug, ALL if self.is_whole else str(self.conditions[0].pk)]
        return ":".join(parts if self.wave is None else [*parts, str(self.wave.number)])

    @property
    def name(self) -> str:
        return self.label if self.wave is None else f"{self.label}, {self.wave}"


def parse_experiment_slug(reference: str) -> str | None:
    """Return the name of the experiment in a reference; None for a text that is no reference."""
    found = REFERENCE.match(reference)
    return found["slug"] if found else None


def list_sides(
    experiments: Iterable[Experiment], readings: Mapping[int, BlindReading] | None = None
) -> dict[str, list[ConditionSide]]:
    """Return the sides that each experiment offers, by its name, in the order of the design: those that have runs.

    readings: the reader's blind readings by the keys of their experiments.
    """
    by_key = {one.pk: one for one in experiments}
    runs = Run.objects.generating().filter(experiment__in=by_key).order_by("pk")
    ran = list(runs.values_list("condition", "wave"))
    conditions: dict[int, list[Condition]] = defaultdict(list)
    found = Condition.objects.filter(pk__in={pk for pk, _ in ran}).order_by("pk")
    for one in found.select_related("model", "prompt", "sampler"):
        conditions[one.experiment_id].append(one)
    waves: dict[int, list[Wave]] = defaultdict(list)
    for wave in Wave.objects.filter(experiment__in=by_key).order_by("number"):
        waves[wave.experiment_id].append(wave)
    sides = {}
    for experiment in by_key.values():
        of_design = conditions[experiment.pk]
        reading = (readings or {}).get(experiment.pk)
        letters = reading.assign_letters([one.model_id for one in of_design]) if reading else None
        sides[experiment.slug] = _list_experiment_sides(experiment, of_design, waves[experiment.pk], set(ran), letters)
    return sides


def _list_experiment_sides(
    experiment: Experiment,
    conditions: list[Condition],
    waves: list[Wave],
    ran: set[tuple[int, int]],
    letters: Mapping[int, str] | None,
) -> list[ConditionSide]:
    labels = make_condition_labels(conditions, letters) if conditions else {}
    by_key = {one.pk: one for one in conditions}
    sides = []
    for key, label in labels.items():
        several = [None, *(wave for wave in waves if (key, wave.pk) in ran)] if len(waves) > 1 else [None]
        sides += [ConditionSide(experiment, (by_key[key],), wave, label, letters=letters) for wave in several]
    if len(conditions) > 1:
        for whole in [None, *waves] if len(waves) > 1 else [None]:
            of_wave = tuple(one for one in conditions if whole is None or (one.pk, whole.pk) in ran)
            if of_wave:
                sides.append(
                    ConditionSide(experiment, of_wave, whole, "all conditions", is_whole=True, letters=letters)
                )
    return sides


def find_side(
    reference: str, sides: Sequence[ConditionSide], other: ConditionSide | None = None
) -> ConditionSide | None:
    """Return the side with this reference.

    An experiment alone means all of its conditions. Beside a side of the same experiment (`other`), it means the first
    condition that is not that side.
    """
    if ":" in reference:
        return next((one for one in sides if one.reference == reference), None)
    if other is None:
        wholes = [one for one in sides if one.is_whole]
        return next(iter([*wholes, *sides]), None)
    return next((one for one in sides if one.reference != other.reference), None)


def list_common_measures(a: Experiment, b: Experiment) -> list[tuple[Measure, Measure]]:
    """Return the measures that both experiments have: of one kind, with one label, on one scale."""
    measures = list_measures(a)
    if a == b:
        return [(one, one) for one in measures]
    others = {(one.kind, one.label, one.low, one.high): one for one in list_measures(b)}
    return [(one, other) for one in measures if (other := others.get((one.kind, one.label, one.low, one.high)))]
