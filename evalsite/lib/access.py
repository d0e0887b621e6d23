"""Who may open a page at all. What lies outside one's reach is 404, never 403: its existence is not told."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest

from evalsite.lib.roles import is_member, is_operator, is_viewer


def is_reader(user: Any) -> bool:
    """Reads pages: a member of the group, or a viewer, who sees what is shared."""
    return is_member(user) or is_viewer(user)


def _only(allowed: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if not allowed(request.user):
                raise Http404
            return view(request, *args, **kwargs)

        return guarded

    return decorate


readers_only = _only(is_reader)
members_only = _only(is_member)
operators_only = _only(is_operator)
