"""The grading app, and what of it the app below asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

if TYPE_CHECKING:
    from runs_app.models import Experiment
    from runs_app.planning.cost_estimate import Estimate
    from runs_app.planning.spec_io import ExperimentBuilder
    from runs_app.planning.specs import GraderSpec


class GradingConfig(AppConfig):
    """Keeps `runs_app.grading_interface.GradingInterface`, by which the app below asks for it."""

    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def scorer_choices(self) -> list[tuple[str, str]]:
        """What a design may name."""
        from grading_app.scoring.grading import scorer_choices

        return scorer_choices()

    def scorers_with_parameter(self) -> list[tuple[str, str]]:
        """How scorers with a parameter are written, and their labels."""
        from grading_app.scoring.grading import scorers_with_parameter

        return scorers_with_parameter()

    def stored_scorer(self, written: str | Mapping[str, Any]) -> str | dict[str, str]:
        """The scorer as a design keeps it, of `regex:PATTERN` or of a mapping. ValueError says what is wrong."""
        from grading_app.scoring.grading import read_rule

        return read_rule(written).stored

    def scorer_text(self, stored: str | Mapping[str, Any]) -> str:
        """A design's scorer as people write it; one that is no longer known as its name."""
        from grading_app.scoring.scorers import scorer_text

        if isinstance(stored, str):
            return stored
        return scorer_text(str(stored.get("name", "")), {key: str(value) for key, value in stored.items()})

    def graders_named(self, maker: ExperimentBuilder, said: Sequence[str | GraderSpec]) -> list[str]:
        """The names of the graders that an experiment file says; those written inline are made by its maker."""
        from grading_app.judging.grader_specs import graders_named

        return graders_named(maker, said)

    def grader_specs(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """These graders as an experiment file says them, with all that they ask written out."""
        from grading_app.judging.grader_specs import grader_specs

        return grader_specs(names)

    def unread_verdicts(self, experiment: Experiment) -> dict[tuple[int, int], dict[str, int]]:
        """How many of a judge's verdicts could not be read, by code; of each judge's condition in each wave."""
        from grading_app.judging.verdict_reader import unread_verdicts

        return unread_verdicts(experiment)

    def rule_scores(self, experiment: Experiment) -> list[dict[str, Any]]:
        """How many answers each rule of the experiment has scored, and how many it could not read, by code."""
        from grading_app.scoring.grading import rule_scores

        return rule_scores(experiment)

    def judges_of(self, experiment: Experiment) -> list[dict[str, Any]]:
        """The judges of the design and those that were added, for a manifest: what each reads, and its prices."""
        from grading_app.judging.manifest_entry import judges_of

        return judges_of(experiment)

    def judges_foreseen(self, experiment: Experiment, wave_label: str, answers: int, longest: int | None) -> Estimate:
        """What the design's judges will cost on so many answers to come, of at most so many tokens: an estimate."""
        from grading_app.judging.cost_forecast import judges_foreseen

        return judges_foreseen(experiment, wave_label, answers, longest)

    def decide_rounds(self) -> int:
        """Decide, here and now, the points of adaptive runs whose round is in; returns how many."""
        from grading_app.adaptive.decisions import decide_due

        return decide_due()

    def recount_points(self) -> list[tuple[Any, ...]]:
        """Each decided point's key, and in pairs what its counters say and what its rows say now."""
        from grading_app.adaptive.audit import recounted

        return recounted()

    def points_of_earlier_rules(self) -> list[str]:
        """Experiments with points that another version of their rule decided than the one that grades now, in
        sentences."""
        from grading_app.adaptive.audit import told_of_all

        return told_of_all()
