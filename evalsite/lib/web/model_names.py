"""A mark for views that are safe for blind readers, because they hide the names of models.

Until a blind reader agrees to see the names, `grading_app/grading/rating/blind_pages.py` blocks all other views of the
experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

MARK_ATTRIBUTE = "hides_model_names"


def hides_model_names(when: Callable[[HttpRequest], bool] = lambda request: True) -> Callable[[Any], Any]:
    """Mark a view that hides the names of models from a blind reader, or replaces them with letters.

    when: a condition, for a view that hides them only for some requests. Put the mark below decorators that copy
    attributes.
    """

    def decorate(view: Any) -> Any:
        setattr(view, MARK_ATTRIBUTE, when)
        return view

    return decorate


def hides_names_for(view: Any, request: HttpRequest) -> bool:
    """Return whether the view is marked to hide the names of models for this request."""
    mark = getattr(view, MARK_ATTRIBUTE, None)
    return mark is not None and mark(request)
