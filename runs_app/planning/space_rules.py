"""The stopping rules of a dataset's parametric space, as the `adaptive` mapping of an experiment over it."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from datasets_app.models import Dataset, ParametricSpace
from runs_app.bounds import ADAPTIVE
from runs_app.experiment_files.adaptive_spec import POINT, AdaptiveSpec

SCORER = "final_answer"
STOP_PARAMETERS = ("targetci", "abortht")  # A task that has one of them has a stopping rule.


class NoSpaceRules(ValueError):
    """Raised for a dataset without its own stopping rules. The message states the reason."""


def read_space_rules(dataset: Dataset) -> dict[str, Any]:
    """Return the content of `adaptive` for a dataset: its points, with the rule of each task of its space.

    A task's round is the largest `count` of its points, and its maximum is `maximum`, or else that count. Raise
    NoSpaceRules if the dataset has no space, or if no task of the space names `targetci` or `abortht`.
    """
    space = ParametricSpace.objects.filter(dataset=dataset).first()
    if space is None:
        raise NoSpaceRules(f"{dataset} was not generated from a parametric space")
    tasks: dict[str, dict[str, Any]] = {}
    for point in space.read_definition()["points"]:
        most = int(ADAPTIVE["round"].high)
        stops = dict(point["stopping"])
        maximum = stops.pop("maximum", point["count"])
        rule = tasks.setdefault(point["task"], {"round": 1, "max": 1, **stops})
        rule["round"] = min(most, max(rule["round"], point["count"]))
        rule["max"] = max(rule["max"], maximum)
    if not any(name in rule for rule in tasks.values() for name in STOP_PARAMETERS):
        raise NoSpaceRules(f"the space of {dataset} has no stopping rules: no task names targetci or abortht")
    try:
        rules = list(tasks.values())
        is_shared = "targetci" in rules[0] and all(rule == rules[0] for rule in rules)
        equal_rules = rules[0] if is_shared else {"tasks": dict(tasks)}
        return AdaptiveSpec.model_validate({"by": POINT, "scorer": SCORER, **equal_rules}).content
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(str(step) for step in problem["loc"])
        raise NoSpaceRules(f"the space of {dataset} has a rule that cannot be used: {path} {problem['msg']}") from None
