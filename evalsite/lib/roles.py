"""Who may see what, in the words of the five roles. The groups themselves are made by a migration."""

from typing import Any

RESEARCHER, CURATOR, OPERATOR, RATER, VIEWER = "Researcher", "Curator", "Operator", "Rater", "Viewer"
MEMBERS = frozenset({RESEARCHER, CURATOR, OPERATOR})


def roles_of(user: Any) -> frozenset[str]:
    """The names of the user's groups, read once a request."""
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return frozenset()
    if not hasattr(user, "_evalsite_roles"):
        user._evalsite_roles = frozenset(user.groups.values_list("name", flat=True))
    return user._evalsite_roles  # type: ignore[no-any-return]


def is_member(user: Any) -> bool:
    """One of the group that runs the lab: sees what belongs to the group."""
    return is_operator(user) or bool(roles_of(user) & MEMBERS)


def is_operator(user: Any) -> bool:
    return bool(getattr(user, "is_active", False) and getattr(user, "is_superuser", False)) or OPERATOR in roles_of(
        user
    )


def is_curator(user: Any) -> bool:
    return bool(getattr(user, "is_active", False) and getattr(user, "is_superuser", False)) or CURATOR in roles_of(user)


def is_viewer(user: Any) -> bool:
    return VIEWER in roles_of(user)
