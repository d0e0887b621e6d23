"""django-q2's own admin runs any function by name and shows arguments and tracebacks: for superusers only."""

from __future__ import annotations

from typing import Any

import django_q.admin  # noqa: F401 - it registers its models when it is imported, so that they can be guarded here
from django.apps import apps
from django.contrib import admin

from evalsite.lib.admin import SuperusersOnly


def _guard(model: Any) -> None:
    shown: Any = type(admin.site._registry[model])
    admin.site.unregister(model)
    admin.site.register(model, type(f"Guarded{shown.__name__}", (SuperusersOnly, shown), {}))


for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        _guard(_model)
