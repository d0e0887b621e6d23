"""The runs app."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs_app"
    verbose_name = "Experiments and runs"
    default_auto_field = "django.db.models.BigAutoField"
