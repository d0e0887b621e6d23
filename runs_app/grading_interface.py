"""The complete interface through which this app calls the grading app, which it never imports.

`grading_app.apps.GradingConfig` implements the interface. Django finds it by app label, and tasks by dotted name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from django.apps import apps

if TYPE_CHECKING:
    from django.db.models import Q

    from runs_app.experiment_files.row_builder import RowBuilder
    from runs_app.experiment_files.specs import GraderSpec
    from runs_app.models import Experiment
    from runs_app.pricing.estimated_costs import Estimate

GRADE = "grading_app.tasks.grade_experiment"  # A task. Its argument is the id of an experiment to grade.


class GradingInterface(Protocol):
    """The methods that `GradingConfig` implements; their docstrings are there."""

    def list_judge_choices(self, user: Any) -> list[tuple[str, str]]: ...

    def find_or_create_graders(self, builder: RowBuilder, entries: Sequence[str | GraderSpec]) -> list[str]: ...

    def write_grader_specs(self, names: Sequence[str]) -> list[dict[str, Any]]: ...

    def load_headlines(self, experiments: Sequence[Experiment]) -> Mapping[int, Any]: ...

    def list_condition_estimates(self, experiment: Experiment) -> list[dict[str, Any]]: ...

    def list_judges_in_use(self, experiment: Experiment) -> list[dict[str, Any]]: ...

    def forecast_judges(
        self, experiment: Experiment, wave_label: str, answers: int, longest: int | None
    ) -> Estimate: ...

    def decide_rounds(self) -> int: ...

    def filter_disagreements(self) -> Q: ...

    def list_items_that_differ(self, experiment: Experiment, key: str = "") -> list[int] | None: ...


def grading() -> GradingInterface:
    return cast(GradingInterface, apps.get_app_config("grading_app"))
