"""Access tokens, and clients that send them."""

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from runs_app.models import ApiToken


def make_token(user, scope="read", *, days=7, experiment=None, label="notebook"):
    """Return a token and its text."""
    return ApiToken.create(user, label, scope, timezone.now() + timedelta(days=days), experiment=experiment)


def make_api_client(user, scope="admin", **fields):
    """Return a client that sends a new token of the user with each request. It checks CSRF tokens as a browser does."""
    return make_bearer(make_token(user, scope, **fields)[1])


def make_bearer(text):
    return Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {text}"})
