"""Marks of views that show a blind reader no names of models.

`grading_app/middleware.py` asks a reader whose names are hidden before any other view of an experiment runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

MARK = "hides_model_names"


def hides_model_names(when: Callable[[HttpRequest], bool] = lambda request: True) -> Callable[[Any], Any]:
    """Mark a view that shows a blind reader no names of models: it replaces them by letters, or shows none.

    when: for a view that hides them only for some requests. Put the mark below decorators that copy attributes.
    """

    def decorate(view: Any) -> Any:
        setattr(view, MARK, when)
        return view

    return decorate


def is_without_names(view: Any, request: HttpRequest) -> bool:
    """Return whether this view is marked to show no names of models for this request."""
    mark = getattr(view, MARK, None)
    return mark is not None and mark(request)
