"""The grading app, and the interface through which `runs_app` uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

if TYPE_CHECKING:
    from django.db.models import Q

    from runs_app.experiment_files.row_builder import RowBuilder
    from runs_app.experiment_files.specs import GraderSpec
    from runs_app.grading_interface import GradingInterface
    from runs_app.models import Experiment
    from runs_app.pricing.estimated_costs import Estimate


class GradingConfig(AppConfig):
    """The implementation of `runs_app.grading_interface.GradingInterface`, through which `runs_app` calls this app."""

    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def list_judge_choices(self, user: Any) -> list[tuple[str, str]]:
        """Return the judges that a design may name, as (name, label) pairs."""
        from grading_app.models import Grader, Rubric

        rows = Grader.objects.visible_to(user).filter(archived_at=None, rubric__status=Rubric.Status.APPROVED)
        rows = rows.select_related("language_model", "rubric").order_by("name")
        return [(row.name, f"{row.name}: {row.language_model} by {row.rubric}") for row in rows]

    def load_headlines(self, experiments: Sequence[Experiment]) -> Mapping[int, Any]:
        """Return the headline score of each experiment from `annotate_totals`, by primary key."""
        from grading_app.results.headlines import load_headlines

        return load_headlines(experiments)

    def list_condition_estimates(self, experiment: Experiment) -> list[dict[str, Any]]:
        """Return the estimate of each measure under each condition, with its interval."""
        from grading_app.results.frames import estimate_conditions

        return estimate_conditions(experiment)

    def find_or_create_graders(self, builder: RowBuilder, entries: Sequence[str | GraderSpec]) -> list[str]:
        """Return the names of the graders in an experiment file. Create the graders that are written inline."""
        from grading_app.judging.grader_specs import read_grader_names

        return read_grader_names(builder, entries)

    def write_grader_specs(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return these graders in the format of an experiment file, with all that they refer to written out."""
        from grading_app.judging.grader_specs import write_grader_specs

        return write_grader_specs(names)

    def list_judges_in_use(self, experiment: Experiment) -> list[dict[str, Any]]:
        """Return the judges of the design and the added ones for a manifest: their texts and prices."""
        from grading_app.judging.manifest_entry import list_judges

        return list_judges(experiment)

    def forecast_judges(self, experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> Estimate:
        """Estimate the cost of the design's judges for `answers` future answers of at most `longest` tokens."""
        from grading_app.judging.cost_forecast import forecast_judging

        return forecast_judging(experiment, wave_label, answers, longest)

    def decide_rounds(self) -> int:
        """Decide, in this process, the points of adaptive runs whose round is complete. Return their number."""
        from grading_app.adaptive.decisions import decide_due

        return decide_due()

    def filter_disagreements(self) -> Q:
        """Return the condition on trials whose answers two raters scored differently."""
        from grading_app.raters.disagreements import filter_disagreements

        return filter_disagreements()

    def list_items_that_differ(self, experiment: Experiment, key: str = "") -> list[int] | None:
        """Return the items that conditions score differently by this measure; None while a worker computes them."""
        from grading_app.results.stored_scores import list_items_that_differ

        return list_items_that_differ(experiment, key)


if TYPE_CHECKING:
    # mypy fails here if a method of the interface is missing or has another signature.
    IMPLEMENTATION: type[GradingInterface] = GradingConfig
