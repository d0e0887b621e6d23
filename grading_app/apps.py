"""The grading app, and the interface through which `runs_app` uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from runs_app.grading_interface import GradingInterface, JudgeRecords
    from runs_app.models import Experiment
    from runs_app.pricing.costs import CostEstimate


class GradingConfig(AppConfig):
    """The implementation of `runs_app.grading_interface.GradingInterface`, through which `runs_app` calls this app."""

    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def describe_judges(self, experiment: Experiment) -> JudgeRecords:
        """Return the judges of the design and the added ones, as experiment files and manifests record them."""
        from grading_app.grading.judging.grader_specs import describe_judges

        return describe_judges(experiment)

    def forecast_judges(
        self, experiment: Experiment, wave_label: str, answers: int, longest: int | None
    ) -> CostEstimate:
        """Estimate the cost of the design's judges for `answers` future answers of at most `longest` tokens."""
        from grading_app.grading.judging.judging_costs import forecast_judging

        return forecast_judging(experiment, wave_label, answers, longest)

    def decide_rounds(self) -> int:
        """Decide, in this process, the points of adaptive runs whose round is complete. Return their number."""
        from grading_app.grading.adaptive_decisions import decide_due

        return decide_due()


if TYPE_CHECKING:
    # mypy fails here if a method of the interface is missing or has another signature.
    IMPLEMENTATION: type[GradingInterface] = GradingConfig
