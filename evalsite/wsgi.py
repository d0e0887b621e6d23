"""The WSGI application of the site."""

import gc
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import django
from django.apps import apps
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.template import TemplateDoesNotExist, TemplateSyntaxError, engines
from django.template.backends.django import DjangoTemplates
from django.urls import reverse
from django.utils.formats import get_format

from evalsite.command_line import COLLECT_AFTER
from evalsite.lib.ops.data_folder import UMASK
from evalsite.lib.sql import load_catalogue

# Modules that pages import when they need them. matplotlib and scipy.stats are left out: they take 70 MB each.
LATE_MODULES = (
    "django.contrib.messages.storage.fallback",
    "encodings.cp437",
    "grading_app.results.raters.agreement_report",
    "markdown_it",
    "scipy.special",
)
PAUSE_S = 0.001

gc.set_threshold(COLLECT_AFTER, 20, 20)
os.umask(UMASK)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")


class Request(WSGIRequest):
    """A request that ignores an invalid charset. Django would fail before any middleware on a bytes-to-bytes codec."""

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        try:
            super()._set_content_type_params(meta)  # type: ignore[misc]
        except LookupError:
            self._encoding = None  # Use UTF-8, as Django does for an unknown charset.


class Handler(WSGIHandler):
    request_class = Request

    @staticmethod
    def warm_up() -> None:
        """Import all pages, compile their templates, and exclude all of that from garbage collection.

        The web server calls this in a thread beside the first requests, so that no visitor waits for it.
        """
        from evalsite.middleware import list_zones
        from grading_app.results.cached_aggregates import prepare_aggregates

        reverse("home")  # Imports the pages, and builds the map of their addresses.
        reverse("admin:index")  # Builds the map of the addresses in the admin, to which the navigation links.
        for name in LATE_MODULES:
            import_module(name)
        prepare_aggregates()
        for model in apps.get_models(include_auto_created=True):
            model._meta.get_fields()
        get_format("DATETIME_FORMAT")  # Imports the formats of the language.
        cache.get("page")  # Imports the cache.
        engine = cast(DjangoTemplates, engines["django"])
        _ = engine.engine.template_context_processors  # Imports them.
        for folder in engine.template_dirs:
            for path in sorted(Path(folder).rglob("*.html")):
                try:
                    engine.get_template(path.relative_to(folder).as_posix())
                except (TemplateDoesNotExist, TemplateSyntaxError):
                    continue  # Of an optional part of Django that the site does not install.
                time.sleep(PAUSE_S)  # Let a request run.
        list_zones()
        gc.collect()
        gc.freeze()

    warm_up_thread = staticmethod(load_catalogue)
    """The web server calls this in each of the first threads of pages, after `warm_up`."""


django.setup(set_prefix=False)
application = Handler()
