"""The sides of a comparison: the answers of one condition or of all, in one wave or in all waves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grading_app.models import BlindReading
from grading_app.results.scores import Measure, list_measures
from runs_app.condition_labels import make_condition_labels
from runs_app.models import Condition, Experiment, Run, Wave

ALL = "all"
REFERENCE = re.compile(r"(?P<slug>[a-z0-9][a-z0-9_-]*)(?::(?P<condition>[0-9]{1,18}|all)(?::(?P<wave>[0-9]{1,8}))?)?\Z")


@dataclass(frozen=True)
class ConditionSide:
    """The answers of one condition, or of all conditions of an experiment, in one wave or in all.

    wave: None for all waves. label: the condition's label within its experiment. is_whole: all conditions.
    letters: the letters of the reader's blind reading by model; None if the reader sees names.
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
    """Return the slug of the experiment in a reference; None if the text is not a reference."""
    match = REFERENCE.match(reference)
    return match["slug"] if match else None


def list_sides(
    experiments: Iterable[Experiment], readings: Mapping[int, BlindReading] | None = None
) -> dict[str, list[ConditionSide]]:
    """Return the sides of each experiment by slug, in the order of the design. Only conditions with runs have sides.

    readings: the reader's blind readings by the keys of their experiments.
    """
    by_key = {experiment.pk: experiment for experiment in experiments}
    runs = Run.objects.answering(by_key).order_by("pk")
    run_keys = list(runs.values_list("condition", "wave"))
    conditions: dict[int, list[Condition]] = defaultdict(list)
    conditions_with_runs = Condition.objects.filter(pk__in={pk for pk, _ in run_keys}).order_by("pk")
    for condition in conditions_with_runs.select_related("model", "prompt", "sampler"):
        conditions[condition.experiment_id].append(condition)
    waves: dict[int, list[Wave]] = defaultdict(list)
    for wave in Wave.objects.filter(experiment__in=by_key).order_by("number"):
        waves[wave.experiment_id].append(wave)
    sides = {}
    for experiment in by_key.values():
        experiment_conditions = conditions[experiment.pk]
        reading = (readings or {}).get(experiment.pk)
        letters = (
            reading.assign_letters([condition.model_id for condition in experiment_conditions]) if reading else None
        )
        sides[experiment.slug] = _list_experiment_sides(
            experiment, experiment_conditions, waves[experiment.pk], set(run_keys), letters
        )
    return sides


def _list_experiment_sides(
    experiment: Experiment,
    conditions: list[Condition],
    waves: list[Wave],
    run_keys: set[tuple[int, int]],
    letters: Mapping[int, str] | None,
) -> list[ConditionSide]:
    labels = make_condition_labels(conditions, letters) if conditions else {}
    by_key = {condition.pk: condition for condition in conditions}
    sides = []
    for key, label in labels.items():
        condition_waves = [None, *(wave for wave in waves if (key, wave.pk) in run_keys)] if len(waves) > 1 else [None]
        sides += [ConditionSide(experiment, (by_key[key],), wave, label, letters=letters) for wave in condition_waves]
    if len(conditions) > 1:
        for wave in [None, *waves] if len(waves) > 1 else [None]:
            wave_conditions = tuple(
                condition for condition in conditions if wave is None or (condition.pk, wave.pk) in run_keys
            )
            if wave_conditions:
                sides.append(
                    ConditionSide(experiment, wave_conditions, wave, "all conditions", is_whole=True, letters=letters)
                )
    return sides


def find_side(
    reference: str, sides: Sequence[ConditionSide], other: ConditionSide | None = None
) -> ConditionSide | None:
    """Return the side with this reference.

    A reference that names only an experiment means all of its conditions. If `other` is a side of the same experiment,
    it means the first other side.
    """
    if ":" in reference:
        return next((side for side in sides if side.reference == reference), None)
    if other is None:
        wholes = [side for side in sides if side.is_whole]
        return next(iter([*wholes, *sides]), None)
    return next((side for side in sides if side.reference != other.reference), None)


def list_common_measures(a: Experiment, b: Experiment) -> list[tuple[Measure, Measure]]:
    """Return the measures that both experiments have, with the same kind, label and scale."""
    measures = list_measures(a)
    if a == b:
        return [(measure, measure) for measure in measures]
    measures_b = {(measure.kind, measure.label, measure.low, measure.high): measure for measure in list_measures(b)}
    return [
        (measure, match)
        for measure in measures
        if (match := measures_b.get((measure.kind, measure.label, measure.low, measure.high)))
    ]
