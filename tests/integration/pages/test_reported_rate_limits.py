"""Rate limits reported by a provider: the endpoint's page shows them while they are valid."""

import time

import pytest
from django.urls import reverse

from runs_app.models import Endpoint
from tests import factories


@pytest.fixture
def show_limits(client, db):
    team = factories.make_team()
    client.force_login(team.owner)
    endpoint = factories.make_endpoint("lab-rates")

    def show(**throttle):
        Endpoint.objects.filter(pk=endpoint.pk).update(throttle=throttle)
        return client.get(reverse("endpoint_live", args=[endpoint.pk])).content.decode()

    return show


def test_stated_limits_are_shown_while_they_are_valid(show_limits):
    now = time.time()
    shown = show_limits(reported_requests=3.0, requests_until=now + 60, reported_tokens=-20.0, tokens_until=now + 60)
    assert "3 requests left until" in shown
    assert "0 tokens left until" in shown


def test_outdated_limits_are_not_shown(show_limits):
    assert "left until" not in show_limits(reported_requests=3.0, requests_until=time.time() - 1)
    assert "left until" not in show_limits()
