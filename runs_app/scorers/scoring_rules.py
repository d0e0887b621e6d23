"""Rules: scorers with their parameters, as a design names them and as grade conditions identify them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalsite.lib.text.hashing import build_condition_id, slugify_name
from runs_app.scorers.scorers import SCORERS, Score, ScoredAnswer, ScoredItem, format_scorer, label_scorer, read_scorer

RULES_VERSION = 2  # Increase it when a scorer's result for an answer changes. Old gradings keep their condition.


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """A scorer with its parameters."""

    scorer: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the rule as people write it: `exact_match`, `regex:PATTERN`."""
        return format_scorer(self.scorer, self.parameters)

    @property
    def label(self) -> str:
        """Return the rule as pages show it, such as "Exact match"."""
        return label_scorer(self.scorer, self.parameters)

    @property
    def stored(self) -> str | dict[str, str]:
        """Return the rule in a design's stored form: the name alone, or a mapping of name and parameters."""
        return {"name": self.scorer, **self.parameters} if self.parameters else self.scorer

    @property
    def grade_condition_id(self) -> str:
        return self.build_condition_id(RULES_VERSION)

    def build_condition_id(self, version: int) -> str:
        """Return the id of the rule's grade condition in this version."""
        content = {"scorer": self.scorer, "parameters": dict(self.parameters), "version": version}
        return build_condition_id(slugify_name(self.scorer), content)

    def score(self, answer: ScoredAnswer, item: ScoredItem) -> Score:
        return SCORERS[self.scorer].score(answer, item, self.parameters)


def read_rule(written: str | Mapping[str, Any]) -> ScoringRule:
    """Return the rule written as `regex:PATTERN`, or as a mapping of `name` and parameters.

    Raise ScorerError if it is invalid.
    """
    return ScoringRule(*read_scorer(written))


def read_rules(written: Iterable[str | Mapping[str, Any]]) -> list[ScoringRule]:
    """Return the rules without duplicates. Raise ScorerError for the first invalid rule."""
    rules = {rule.grade_condition_id: rule for rule in map(read_rule, written)}
    return list(rules.values())


def list_scorer_choices() -> list[tuple[str, str]]:
    """Return names and labels of the scorers that need no parameter."""
    return [(scorer.name, scorer.form_label) for scorer in SCORERS.values() if not scorer.needs_parameter]


def list_scorers_with_parameter() -> list[tuple[str, str]]:
    """Return the syntax and the label of the scorers with a parameter."""
    return [(scorer.usage, scorer.form_label) for scorer in SCORERS.values() if scorer.parameter]


def get_scorer_name(stored: str | Mapping[str, Any]) -> str:
    """Return the name of a design's scorer. A scorer with a parameter is stored as a mapping."""
    return stored if isinstance(stored, str) else str(stored.get("name", ""))


def label_stored_scorer(stored: str | Mapping[str, Any]) -> str:
    """Return a design's scorer as pages show it."""
    parameters = {} if isinstance(stored, str) else {key: value for key, value in stored.items() if key != "name"}
    return label_scorer(get_scorer_name(stored), parameters)


def format_stored_scorer(stored: str | Mapping[str, Any]) -> str:
    """Return a design's scorer as people write it. For an unknown scorer return its name."""
    parameters = {} if isinstance(stored, str) else {key: str(value) for key, value in stored.items()}
    return format_scorer(get_scorer_name(stored), parameters)
