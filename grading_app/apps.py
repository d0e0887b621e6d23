"""The grading app."""

from django.apps import AppConfig


class GradingConfig(AppConfig):
    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def scorer_choices(self) -> list[tuple[str, str]]:
        """What a design may choose by name alone: the scorers that need no parameter."""
        from grading_app.scoring import SCORERS

        return [(scorer.name, scorer.label) for scorer in SCORERS.values() if not scorer.needs]
