"""Users in their roles."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from evalsite.lib import permissions

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Team:
    """The owner of a private experiment, a member with whom it is shared, and a viewer without access."""

    owner: object
    teammate: object
    outsider: object
    rater: object
    operator: object


def make_user(name, *role_names, superuser=False, email=""):
    user = get_user_model().objects.create_user(name, email, is_superuser=superuser, is_staff=superuser)
    if role_names:
        user.groups.add(*Group.objects.filter(name__in=role_names))
    return user


def make_team():
    return Team(
        owner=make_user("owner", permissions.RESEARCHER),
        teammate=make_user("teammate", permissions.RESEARCHER),
        outsider=make_user("outsider", permissions.VIEWER),
        rater=make_user("rater", permissions.RATER),
        operator=make_user("operator", permissions.OPERATOR),
    )
