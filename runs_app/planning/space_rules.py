"""The stopping rules of a dataset's parametric space, as the `adaptive` mapping of an experiment over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from datasets_app.models import Dataset, ParametricSpace
from runs_app.bounds import ADAPTIVE
from runs_app.experiment_files.adaptive_spec import POINT, AdaptiveSpec

SCORER = "final_answer"
STOPS = ("targetci", "abortht")  # A task with one of these has a stopping rule.


class NoSpaceRules(ValueError):
    """A dataset without stopping rules of its own. The message gives the reason."""


def read_space_rules(dataset: Dataset) -> dict[str, Any]:
    """Return the content of `adaptive` for a dataset: its points, with the rule of each task of its space.

    A task's round is the largest `count` of its points, and its maximum is `maximum`, or else that count. Raise
    NoSpaceRules if the dataset was not generated, or no task of its space names `targetci` or `abortht`.
    """
    space = ParametricSpace.objects.filter(dataset=dataset).first()
    if space is None:
        raise NoSpaceRules(f"{dataset} was not generated from a parametric space")
    tasks: dict[str, dict[str, Any]] = {}
    for point in space.read_definition()["points"]:
        _add_point(tasks, point)
    if not any(name in rule for rule in tasks.values() for name in STOPS):
        raise NoSpaceRules(f"the space of {dataset} has no stopping rules: no task names targetci or abortht")
    try:
        return AdaptiveSpec.model_validate({"by": POINT, "scorer": SCORER, **_shorten(tasks)}).content
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(str(step) for step in problem["loc"])
        raise NoSpaceRules(f"the space of {dataset} has a rule that cannot be used: {path} {problem['msg']}") from None


def _add_point(tasks: dict[str, dict[str, Any]], point: Mapping[str, Any]) -> None:
    most = int(ADAPTIVE["round"].high)
    stops = dict(point["stopping"])
    maximum = stops.pop("maximum", point["count"])
    rule = tasks.setdefault(point["task"], {"round": 1, "max": 1, **stops})
    rule["round"] = min(most, max(rule["round"], point["count"]))
    rule["max"] = max(rule["max"], maximum)


def _shorten(tasks: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one rule for all points if all tasks have the same, or else the rules by task."""
    rules = list(tasks.values())
    is_shared = "targetci" in rules[0] and all(rule == rules[0] for rule in rules)
    return rules[0] if is_shared else {"tasks": dict(tasks)}
