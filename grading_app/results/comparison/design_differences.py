"""Differences in the design of two sides: facts, parameters, and the text of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalsite.lib.text.diff import DiffRow, compare_lines
from grading_app.results.comparison.condition_sides import ConditionSide
from runs_app.models import Dimension

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
