"""The grading app."""

from django.apps import AppConfig


class GradingConfig(AppConfig):
    name = "grading_app"
    verbose_name = "Grading"
    default_auto_field = "django.db.models.BigAutoField"
