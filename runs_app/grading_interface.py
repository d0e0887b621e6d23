"""The complete interface through which this app calls the grading app, which it never imports.

`grading_app.apps.GradingConfig` implements the interface. Django finds it by app label, and tasks by dotted name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from django.apps import apps

if TYPE_CHECKING:
    from runs_app.models import Experiment
    from runs_app.pricing.costs import CostEstimate

GRADE = "grading_app.tasks.grade_experiment"  # A task. Its argument is the id of an experiment to grade.


@dataclass(frozen=True, slots=True)
class JudgeRecords:
    """The judges of an experiment as files record them.

    `specs` are those of the design, in the form of an experiment file. `in_use` are these and the judges added later,
    with the hashes of their texts and their prices, for a manifest.
    """

    specs: list[dict[str, Any]]
    in_use: list[dict[str, Any]]


class GradingInterface(Protocol):
    """The methods that `GradingConfig` implements; their docstrings are there."""

    def describe_judges(self, experiment: Experiment) -> JudgeRecords: ...

    def forecast_judges(
        self, experiment: Experiment, wave_label: str, answers: int, longest: int | None
    ) -> CostEstimate: ...

    def decide_rounds(self) -> int: ...


def grading() -> GradingInterface:
    return cast(GradingInterface, apps.get_app_config("grading_app"))
