"""The grading app."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig


class GradingConfig(AppConfig):
    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def scorer_choices(self) -> list[tuple[str, str]]:
        """What a design may name."""
        from grading_app.grading import scorer_choices

        return scorer_choices()

    def graders_named(self, maker: Any, said: Sequence[Any]) -> list[str]:
        """The names of the graders that an experiment file says; those written inline are made by its maker."""
        from grading_app.judging.designing import graders_named

        return graders_named(maker, said)

    def grader_specs(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """These graders as an experiment file says them, with all that they ask written out."""
        from grading_app.judging.designing import grader_specs

        return grader_specs(names)

    def unread_verdicts(self, experiment: Any) -> dict[tuple[int, int], dict[str, int]]:
        """How many of a judge's verdicts could not be read, by code; of each judge's condition in each wave."""
        from grading_app.judging.reading import unread_verdicts

        return unread_verdicts(experiment)

    def judges_of(self, experiment: Any) -> list[dict[str, Any]]:
        """The judges of the design and those that were added, for a manifest: what each reads, and its prices."""
        from grading_app.judging.listing import judges_of

        return judges_of(experiment)

    def judges_foreseen(self, experiment: Any, wave_label: str, answers: int, longest: int | None) -> Any:
        """What the design's judges will cost on so many answers to come, of at most so many tokens: an estimate."""
        from grading_app.judging.foreseeing import judges_foreseen

        return judges_foreseen(experiment, wave_label, answers, longest)
