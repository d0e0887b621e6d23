"""The sides of a comparison: the answers of one condition, in one wave or in all waves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grading_app.reports.frames import condition_labels
from grading_app.reports.score_matrix import Measure, list_measures
from runs_app.models import Condition, Experiment, Run, Wave

REFERENCE = re.compile(r"(?P<slug>[a-z0-9][a-z0-9_-]*)(?::(?P<condition>[0-9]{1,18})(?::(?P<wave>[0-9]{1,8}))?)?\Z")


@dataclass(frozen=True)
class Side:
    """The answers of a condition. wave: None for all waves. label: the condition's label within its experiment."""

    experiment: Experiment
    condition: Condition
    wave: Wave | None
    label: str

    @property
    def reference(self) -> str:
        """The side in addresses: `experiment:condition`, or `experiment:condition:wave`, with keys and numbers."""
        parts = [self.experiment.slug, str(self.condition.pk)]
        return ":".join(parts if self.wave is None else [*parts, str(self.wave.number)])

    @property
    def name(self) -> str:
        return self.label if self.wave is None else f"{self.label}, {self.wave}"


def experiment_of(reference: str) -> str | None:
    """Return the name of the experiment in a reference; None for a text that is no reference."""
    found = REFERENCE.match(reference)
    return found["slug"] if found else None


def list_sides(experiments: Iterable[Experiment]) -> dict[str, list[Side]]:
    """Return the sides that each experiment offers, by its name, in the order of the design: those that have runs."""
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
    return {
        experiment.slug: _sides(experiment, conditions[experiment.pk], waves[experiment.pk], set(ran))
        for experiment in by_key.values()
    }


def _sides(
    experiment: Experiment, conditions: list[Condition], waves: list[Wave], ran: set[tuple[int, int]]
) -> list[Side]:
    labels = condition_labels(conditions) if conditions else {}
    sides = []
    for one in conditions:
        sides.append(Side(experiment, one, None, labels[one.pk]))
        if len(waves) > 1:
            sides += [Side(experiment, one, wave, labels[one.pk]) for wave in waves if (one.pk, wave.pk) in ran]
    return sides


def find_side(reference: str, sides: Sequence[Side], other: Side | None = None) -> Side | None:
    """Return the side with this reference; for an experiment alone, its first side that is not `other`."""
    if ":" not in reference:
        return next((one for one in sides if other is None or one.reference != other.reference), None)
    return next((one for one in sides if one.reference == reference), None)


def common_measures(a: Experiment, b: Experiment) -> list[tuple[Measure, Measure]]:
    """Return the measures that both experiments have: of one kind, with one label, on one scale."""
    measures = list_measures(a)
    if a == b:
        return [(one, one) for one in measures]
    others = {(one.kind, one.label, one.low, one.high): one for one in list_measures(b)}
    return [(one, other) for one in measures if (other := others.get((one.kind, one.label, one.low, one.high)))]
