"""The sides of a comparison: the answers of one condition or of all, in one wave or in all waves, and their design."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evalsite.lib.text.diff import DiffRow, compare_lines
from grading_app.models import BlindReading
from grading_app.results.scores import Measure, list_measures
from runs_app.models import Condition, Dimension, Experiment, Run, Wave
from runs_app.models.conditions import make_condition_labels

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

    @property
    def is_unfinished(self) -> bool:
        runs = self.experiment.runs.filter(condition__in=self.conditions)
        runs = runs if self.wave is None else runs.filter(wave=self.wave)
        return any(run.n_pending or run.n_running for run in runs)


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


HASH_DIGITS = 12  # The number of digits of a hash that a page shows.


@dataclass(frozen=True, slots=True)
class DesignFact:
    """One fact of a design on both sides."""

    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class TurnDifference:
    """One turn of the prompts, line by line. `title` names its number and role."""

    title: str
    rows: Sequence[DiffRow]


@dataclass(frozen=True, slots=True)
class DesignDifferences:
    """The facts of both sides in the order of a design, and the turns of the prompts if their texts differ."""

    facts: Sequence[DesignFact]
    turns: Sequence[TurnDifference]

    @property
    def differing(self) -> list[DesignFact]:
        return [fact for fact in self.facts if fact.differs]

    @property
    def equal(self) -> list[str]:
        """The names of the equal facts, for a sentence."""
        return [fact.name.lower() for fact in self.facts if not fact.differs]


def compare_designs(a: ConditionSide, b: ConditionSide, dimensions: tuple[int | None, int | None]) -> DesignDifferences:
    """Return the differences. dimensions: the dimension of the measure in each experiment."""
    dimensions_by_key = Dimension.objects.in_bulk([pk for pk in dimensions if pk is not None])
    names = tuple(str(dimensions_by_key[pk]) if pk is not None else "" for pk in dimensions)
    is_hidden = a.letters is not None or b.letters is not None
    facts_a, facts_b = (_list_facts(side, is_hidden) for side in (a, b))
    if any(names):
        facts_a["Dimension"], facts_b["Dimension"] = names
    merged = {**facts_a, **facts_b}
    facts = [DesignFact(name, facts_a.get(name, "not set"), facts_b.get(name, "not set")) for name in merged]
    turns_a, turns_b = _list_turns(a), _list_turns(b)
    if turns_a is None or turns_b is None or turns_a == turns_b:
        return DesignDifferences(facts, [])
    titles = dict.fromkeys([*turns_a, *turns_b])
    lines = {title: compare_lines(turns_a.get(title, ""), turns_b.get(title, "")) for title in titles}
    return DesignDifferences(facts, [TurnDifference(title, of_turn) for title, of_turn in lines.items()])


def _list_facts(side: ConditionSide, is_hidden: bool) -> dict[str, str]:
    """Return the facts of the snapshot that was sent to the model. is_hidden: omit facts that identify models."""
    dataset = side.experiment.dataset
    waves = {"Wave": str(side.wave) if side.wave else "all waves"}
    models = [
        side.letters[condition.model_id] if side.letters else condition.model.name for condition in side.conditions
    ]
    facts = {
        "Experiment": side.experiment.slug,
        **waves,
        "Dataset": f"{dataset}, hash {dataset.content_hash[:HASH_DIGITS]}"
        if dataset.content_hash
        else f"{dataset}, draft",
        "Model": _join_names(models),
        **({} if is_hidden else _list_common_parameters(side, "Model")),
        "Prompt": _join_names(str(condition.prompt) if condition.prompt else "" for condition in side.conditions),
        **_list_common_parameters(side, "Prompt"),
        "Sampler": _join_names(str(condition.sampler) for condition in side.conditions),
        **_list_common_parameters(side, "Sampler"),
        "Repetitions": str(side.experiment.samples),
    }
    return {name: value for name, value in facts.items() if value}


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(name for name in names if name))


def _list_common_parameters(side: ConditionSide, name: str) -> dict[str, str]:
    """Return the parameters of one part if they are the same for all conditions of the side.

    The turns of a prompt are compared as texts instead.
    """
    first, *others = [condition.content.get(name.lower()) for condition in side.conditions]
    if not isinstance(first, dict) or any(content != first for content in others):
        return {}
    return {f"{name}: {key.replace('_', ' ')}": str(value) for key, value in first.items() if key != "messages"}


def _list_turns(side: ConditionSide) -> dict[str, str] | None:
    """Return the turns of the side's prompt; None if its conditions have several prompts."""
    prompts = [condition.content.get("prompt") for condition in side.conditions]
    prompt = prompts[0]
    if any(condition != prompt for condition in prompts):
        return None
    messages = prompt.get("messages", []) if isinstance(prompt, dict) else []
    return {f"Turn {number}, {turn['role']}": str(turn["content"]) for number, turn in enumerate(messages, 1)}
