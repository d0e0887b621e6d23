"""The app configuration of the datasets app."""

from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "datasets_app"
    verbose_name = "Datasets"
    default_auto_field = "django.db.models.BigAutoField"
