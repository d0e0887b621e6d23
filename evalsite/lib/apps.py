"""The shared library as a Django app, so that Django finds its template tags and system checks."""

from django.apps import AppConfig


class LibConfig(AppConfig):
    name = "evalsite.lib"
    default_auto_field = "django.db.models.BigAutoField"
    label = "lib"
    verbose_name = "Site"

    def ready(self) -> None:
        from evalsite.lib.ops import checks  # noqa: F401 - importing it registers the checks
