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

    def list_scorer_choices(self) -> list[tuple[str, str]]: ...

    def list_scorers_with_parameter(self) -> list[tuple[str, str]]: ...

    def list_judge_choices(self, user: Any) -> list[tuple[str, str]]: ...

    def parse_scorer(self, written: str | Mapping[str, Any]) -> str | dict[str, str]: ...

    def format_scorer(self, stored: str | Mapping[str, Any]) -> str: ...

    def find_or_create_graders(self, builder: RowBuilder, entries: Sequence[str | GraderSpec]) -> list[str]: ...

    def write_grader_specs(self, names: Sequence[str]) -> list[dict[str, Any]]: ...

    def count_unread_verdicts(self, experiment: Experiment) -> dict[tuple[int, int], dict[str, int]]: ...

    def load_rule_scores(self, experiment: Experiment) -> list[dict[str, Any]]: ...

    def load_headlines(self, experiments: Sequence[Experiment]) -> Mapping[int, Any]: ...

    def list_condition_estimates(self, experiment: Experiment) -> list[dict[str, Any]]: ...

    def list_judges_in_use(self, experiment: Experiment) -> list[dict[str, Any]]: ...

    def forecast_judges(
        self, experiment: Experiment, wave_label: str, answers: int, longest: int | None
    ) -> Estimate: ...

    def decide_rounds(self) -> int: ...

    def recount_points(self) -> list[tuple[Any, ...]]: ...

    def find_points_of_earlier_rules(self) -> list[str]: ...

    def filter_disagreements(self) -> Q: ...

    def list_items_that_differ(self, experiment: Experiment, key: str = "") -> list[int] | None: ...


def grading() -> GradingInterface:
    return cast(GradingInterface, apps.get_app_config("grading_app"))


def list_scorer_choices() -> list[tuple[str, str]]:
    """Return the scorers that a design may name, as (value, label) pairs; empty if the site has no grading app."""
    return grading().list_scorer_choices() if apps.is_installed("grading_app") else []


def list_scorers_with_parameter() -> list[tuple[str, str]]:
    """Return the written forms of scorers with a parameter (`regex:PATTERN`), each with its label."""
    return grading().list_scorers_with_parameter() if apps.is_installed("grading_app") else []


def get_scorer_name(stored: str | Mapping[str, Any]) -> str:
    """Return the name of a design's scorer. A scorer with a parameter is stored as a mapping."""
    return stored if isinstance(stored, str) else str(stored.get("name", ""))
