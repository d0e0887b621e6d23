"""A machine's clock that is set forward or back: sessions, forms and the limit on failed sign-ins."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from evalsite.lib.models import FailedSignIn, TooManyFailures
from tests import factories

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PASSWORD = "long enough to be a password"


@pytest.fixture
def clock():
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


@pytest.fixture
def person(db):
    user = factories.make_user("rita", "Researcher")
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(client, **more):
    return client.post(reverse("login"), {"username": "rita", "password": PASSWORD, **more})


def is_signed_in(client):
    return client.get(reverse("experiment_list")).status_code == 200


def test_a_session_ends_when_the_clock_is_set_beyond_its_end(clock, person):
    client = Client()
    sign_in(client)
    clock.move_to(NOON + timedelta(days=13))
    assert is_signed_in(client)
    clock.move_to(NOON + timedelta(days=15))
    assert not is_signed_in(client)
    sign_in(client)
    assert is_signed_in(client)


def test_a_session_survives_a_clock_that_is_set_back(clock, person):
    client = Client()
    sign_in(client)
    clock.move_to(NOON - timedelta(days=1))
    assert is_signed_in(client)
    assert Session.objects.get().expire_date == NOON + timedelta(days=14), "reading a page does not prolong it"


@pytest.mark.parametrize("jump", [timedelta(days=10), timedelta(days=-10)])
def test_a_form_is_accepted_after_the_clock_has_jumped(clock, person, jump):
    client = Client(enforce_csrf_checks=True)
    client.get(reverse("login"))
    clock.move_to(NOON + jump)
    token = client.cookies["csrftoken"].value
    assert sign_in(client).status_code == 403
    assert sign_in(client, csrfmiddlewaretoken=token).status_code == 302
    assert is_signed_in(client)


def test_a_clock_that_is_set_back_blocks_nobody_for_longer_than_the_limit(clock, person):
    for _ in range(10):
        FailedSignIn.objects.begin({"account rita": 10})
    clock.move_to(NOON - timedelta(days=3))
    with pytest.raises(TooManyFailures) as refusal:
        FailedSignIn.objects.begin({"account rita": 10})
    assert refusal.value.seconds == 15 * 60
    clock.shift(timedelta(minutes=15, seconds=1))
    assert FailedSignIn.objects.begin({"account rita": 10})


def test_a_clock_that_is_set_forward_and_corrected_resets_no_limit(clock, person):
    """Failures are counted from the correction on, so nobody guesses more by waiting for one."""
    clock.move_to(NOON + timedelta(days=3))
    for _ in range(10):
        FailedSignIn.objects.begin({"account rita": 10})
    clock.move_to(NOON)
    for minutes in (0, 5, 9):
        clock.move_to(NOON + timedelta(minutes=minutes))
        with pytest.raises(TooManyFailures):
            FailedSignIn.objects.begin({"account rita": 10})
    clock.move_to(NOON + timedelta(minutes=16))
    assert FailedSignIn.objects.begin({"account rita": 10})
