"""The shared library as an app, so that its template tags and checks are found."""

from django.apps import AppConfig


class LibConfig(AppConfig):
    name = "evalsite.lib"
    label = "lib"

    def ready(self) -> None:
        from evalsite.lib import checks  # noqa: F401 - importing it registers the checks
