"""Differences in the design of two sides: facts, parameters, and the text of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.text.diff import Row, compare_lines
from grading_app.comparison.condition_sides import ConditionSide
from runs_app.models import Dimension

HASH = 12  # Digits of a hash that a page shows.


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
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class DesignDifferences:
    """facts: of both sides, in the order of a design. turns: of the prompts, if their texts differ."""

    facts: Sequence[DesignFact]
    turns: Sequence[TurnDifference]

    @property
    def differing(self) -> list[DesignFact]:
        return [fact for fact in self.facts if fact.differs]

    @property
    def equal(self) -> list[str]:
        """The names of the facts that are equal, for one sentence."""
        return [fact.name.lower() for fact in self.facts if not fact.differs]


def compare_designs(a: ConditionSide, b: ConditionSide, dimensions: tuple[int | None, int | None]) -> DesignDifferences:
    """Return the differences. `dimensions` are those of the measure in both experiments."""
    found = Dimension.objects.in_bulk([pk for pk in dimensions if pk is not None])
    names = tuple(str(found[pk]) if pk is not None else "" for pk in dimensions)
    is_hidden = a.letters is not None or b.letters is not None
    one, other = (_list_facts(side, is_hidden) for side in (a, b))
    if any(names):
        one["Dimension"], other["Dimension"] = names
    merged = {**one, **other}
    facts = [DesignFact(name, one.get(name, "not set"), other.get(name, "not set")) for name in merged]
    return DesignDifferences(facts, _compare_turns(a, b))


def _list_facts(side: ConditionSide, is_hidden: bool) -> dict[str, str]:
    """Return the facts from the snapshot that was sent to the model. is_hidden: without what tells models apart."""
    dataset = side.experiment.dataset
    waves = {"Wave": str(side.wave) if side.wave else "all waves"}
    models = [side.letters[one.model_id] if side.letters else one.model.name for one in side.conditions]
    facts = {
        "Experiment": side.experiment.slug,
        **waves,
        "Dataset": f"{dataset}, hash {dataset.content_hash[:HASH]}" if dataset.content_hash else f"{dataset}, draft",
        "Model": _join_names(models),
        **({} if is_hidden else _list_common_parameters(side, "Model")),
        "Prompt": _join_names(str(one.prompt) if one.prompt else "" for one in side.conditions),
        **_list_common_parameters(side, "Prompt"),
        "Sampler": _join_names(str(one.sampler) for one in side.conditions),
        **_list_common_parameters(side, "Sampler"),
        "Repetitions": str(side.experiment.samples),
    }
    return {name: value for name, value in facts.items() if value}


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(name for name in names if name))


def _list_common_parameters(side: ConditionSide, name: str) -> dict[str, str]:
    """Return the parameters of one part, if all conditions of the side have the same."""
    contents = [one.content.get(name.lower()) for one in side.conditions]
    return _list_parameters(name, contents[0]) if all(one == contents[0] for one in contents) else {}


def _list_parameters(name: str, content: Any) -> dict[str, str]:
    """Return the parameters of one part. The turns of a prompt are compared as texts instead."""
    if not isinstance(content, dict):
        return {}
    return {f"{name}: {key.replace('_', ' ')}": str(value) for key, value in content.items() if key != "messages"}


def _compare_turns(a: ConditionSide, b: ConditionSide) -> list[TurnDifference]:
    one, other = _list_turns(a), _list_turns(b)
    if one == other or None in (one, other):
        return []
    one, other = one or {}, other or {}
    titles = list(dict.fromkeys([*one, *other]))
    return [TurnDifference(title, compare_lines(one.get(title, ""), other.get(title, ""))) for title in titles]


def _list_turns(side: ConditionSide) -> dict[str, str] | None:
    """Return the turns of the side's prompt; None if its conditions have several prompts."""
    prompts = [one.content.get("prompt") for one in side.conditions]
    prompt = prompts[0]
    if any(one != prompt for one in prompts):
        return None
    messages = prompt.get("messages", []) if isinstance(prompt, dict) else []
    return {f"Turn {at}, {turn['role']}": str(turn["content"]) for at, turn in enumerate(messages, 1)}
