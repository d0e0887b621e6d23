"""The app configuration that gives Django's admin the site's own AdminSite."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class EvalsiteAdminConfig(SimpleAdminConfig):
    """The admin, whose modules are imported with the addresses (`evalsite.urls`) and by the checks.

    Workers and most commands need neither, and their import takes two fifths of the start of a process.
    """

    default_site = "evalsite.lib.web.admin.EvalsiteAdminSite"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_registered_models, checks.Tags.admin)


def check_registered_models(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return list(check_admin_app(app_configs, **options))
