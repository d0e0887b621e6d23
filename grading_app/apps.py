"""The grading app."""

from django.apps import AppConfig


class GradingConfig(AppConfig):
    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"

    def scorer_choices(self) -> list[tuple[str, str]]:
        """What a design may name."""
        from grading_app.grading import scorer_choices

        return scorer_choices()
