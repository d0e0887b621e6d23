"""Permission rules based on the five roles. Each role is a group, which a migration creates."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import resolve

RESEARCHER, CURATOR, OPERATOR, RATER, VIEWER = "Researcher", "Curator", "Operator", "Rater", "Viewer"
MEMBERS = frozenset({RESEARCHER, CURATOR, OPERATOR})


def get_roles(user: Any) -> frozenset[str]:
    """Return the names of the user's groups. They are read once per request."""
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return frozenset()
    if not hasattr(user, "_evalsite_roles"):
        user._evalsite_roles = frozenset(user.groups.values_list("name", flat=True))
    return user._evalsite_roles  # type: ignore[no-any-return]


def is_member(user: Any) -> bool:
    """Return whether the user is a member of the lab and may see the lab's data."""
    return is_operator(user) or bool(get_roles(user) & MEMBERS)


def is_operator(user: Any) -> bool:
    return bool(getattr(user, "is_active", False) and getattr(user, "is_superuser", False)) or OPERATOR in get_roles(
        user
    )


def is_curator(user: Any) -> bool:
    return bool(getattr(user, "is_active", False) and getattr(user, "is_superuser", False)) or CURATOR in get_roles(
        user
    )


def is_viewer(user: Any) -> bool:
    return VIEWER in get_roles(user)


def is_reader(user: Any) -> bool:
    """Return whether the user may read pages: a member, or a viewer, who sees only shared data."""
    return is_member(user) or is_viewer(user)


def uses_admin(user: Any) -> bool:
    """Return whether the user may open the admin: a member, or an account marked as staff."""
    return bool(user.is_active and user.is_staff) or is_member(user)


def _restrict_to(allowed: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if not allowed(request.user):
                raise Http404
            return view(request, *args, **kwargs)

        guarded.may_open = allowed  # type: ignore[attr-defined]
        return guarded

    return decorate


readers_only = _restrict_to(is_reader)
members_only = _restrict_to(is_member)
operators_only = _restrict_to(is_operator)


def may_open(user: Any, path: str) -> bool:
    """Return whether the user may open the page at `path` under the rule of its view. Used for menus."""
    view = resolve(path).func
    if hasattr(view, "admin_site"):
        return uses_admin(user)
    rule = getattr(view, "may_open", None)  # Outer decorators copy this attribute.
    return rule is None or rule(user)
