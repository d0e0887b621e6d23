"""Password guessing is limited, and the account's owner can still sign in."""

from datetime import timedelta
from io import StringIO

import pytest
import time_machine
from django.conf import settings as site_settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from evalsite.lib import permissions
from evalsite.lib.models import FailedSignIn
from evalsite.lib.ops.environment import SettingError, read_networks
from evalsite.lib.web.sign_in import ACCOUNT_FAILURES, ADDRESS_FAILURES
from tests import factories

pytestmark = pytest.mark.django_db
PASSWORD = "long enough to be a password"
LOGIN = "/accounts/login/"


@pytest.fixture(autouse=True)
def use_quick_hashes(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ada(use_quick_hashes):
    user = factories.make_user("ada", permissions.RESEARCHER)
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(client, name="ada", password=PASSWORD, *, address="10.0.0.1", **headers):
    return client.post(LOGIN, {"username": name, "password": password}, REMOTE_ADDR=address, headers=headers)


def guess_passwords(n, *, client=None, name="ada", address="10.0.0.1"):
    return [sign_in(client or Client(), name, "wrong", address=address).status_code for _ in range(n)]


def test_a_wrong_password_is_reported_and_the_name_is_kept(ada, client):
    response = sign_in(client, password="wrong")
    assert response.status_code == 200
    assert 'value="ada"' in response.content.decode()


def test_failures_per_account_are_limited_over_all_addresses(ada):
    for number in range(ACCOUNT_FAILURES):
        assert guess_passwords(1, address=f"10.0.1.{number}") == [200]
    response = sign_in(Client(), address="10.0.2.1")
    assert response.status_code == 429
    assert "Wait 15 minutes" in response.content.decode()
    assert 0 < int(response["Retry-After"]) <= 15 * 60


def test_the_wait_ends_by_itself(ada):
    guess_passwords(ACCOUNT_FAILURES)
    assert sign_in(Client()).status_code == 429
    with time_machine.travel(timezone.now() + FailedSignIn.WINDOW + timedelta(seconds=1), tick=False):
        assert sign_in(Client()).status_code == 302


def test_attempts_during_the_wait_do_not_make_it_longer(ada):
    start = timezone.now()
    with time_machine.travel(start, tick=False):
        guess_passwords(ACCOUNT_FAILURES)
    with time_machine.travel(start + timedelta(minutes=14), tick=False):
        assert set(guess_passwords(5)) == {429}
    with time_machine.travel(start + timedelta(minutes=15, seconds=1), tick=False):
        assert sign_in(Client()).status_code == 302


def test_a_known_browser_is_not_blocked_by_guesses_from_other_addresses(ada, client):
    assert sign_in(client).status_code == 302
    client.post("/accounts/logout/")
    guess_passwords(ACCOUNT_FAILURES, address="10.9.9.9")
    assert sign_in(Client()).status_code == 429
    assert sign_in(client).status_code == 302


def test_a_known_browser_has_its_own_limit_for_its_own_account_only(ada, client):
    sign_in(client)
    client.post("/accounts/logout/")
    assert guess_passwords(ACCOUNT_FAILURES, client=client)[-1] == 200
    assert sign_in(client).status_code == 429
    guess_passwords(ACCOUNT_FAILURES, name="bob")
    assert sign_in(client, name="bob").status_code == 429


def test_unknown_names_are_refused_in_the_same_way(ada):
    known_statuses, unknown_statuses = (
        guess_passwords(ACCOUNT_FAILURES + 1),
        guess_passwords(ACCOUNT_FAILURES + 1, name="nobody", address="10.0.0.9"),
    )
    assert known_statuses == unknown_statuses
    texts = [
        sign_in(Client(), name).content.decode().partition('class="errorlist')[2][:400] for name in ("ada", "nobody")
    ]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_failures_per_address_are_limited_over_all_accounts(ada):
    for number in range(ADDRESS_FAILURES):
        assert guess_passwords(1, name=f"user-{number}", address="2001:db8::1") == [200]
    assert sign_in(Client(), address="2001:db8::2").status_code == 429, "one network of IPv6 counts as one address"
    assert sign_in(Client(), address="2001:db8:1::1").status_code == 302


@pytest.mark.slow
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(ada, settings):
    for number in range(ADDRESS_FAILURES):
        sign_in(Client(), f"user-{number}", "wrong", address="10.0.0.5", **{"X-Forwarded-For": f"192.0.2.{number}"})
    forwarded = {"X-Forwarded-For": "192.0.2.200"}
    assert sign_in(Client(), address="10.0.0.5", **forwarded).status_code == 429
    settings.TRUSTED_PROXIES = read_networks("X", {"X": "10.0.0.0/8"})
    assert sign_in(Client(), address="10.0.0.5", **forwarded).status_code == 302


@pytest.mark.slow
def test_addresses_that_a_client_adds_to_the_header_are_not_trusted(ada, settings):
    settings.TRUSTED_PROXIES = read_networks("X", {"X": "10.0.0.5"})
    for number in range(ADDRESS_FAILURES):
        forwarded = {"X-Forwarded-For": f"198.51.100.{number}, 192.0.2.7"}
        sign_in(Client(), f"user-{number}", "wrong", address="10.0.0.5", **forwarded)
    assert sign_in(Client(), address="10.0.0.5", **{"X-Forwarded-For": "203.0.113.1, 192.0.2.7"}).status_code == 429


def test_a_setting_that_is_not_a_network_is_refused():
    with pytest.raises(SettingError, match="EVALSITE_TRUSTED_PROXIES"):
        read_networks("EVALSITE_TRUSTED_PROXIES", {"EVALSITE_TRUSTED_PROXIES": "nginx"})


def test_a_success_does_not_count_and_old_failures_are_deleted(ada, client):
    FailedSignIn.objects.create(key="account old", at=timezone.now() - 2 * FailedSignIn.WINDOW)
    assert sign_in(client).status_code == 302
    assert not FailedSignIn.objects.exists()


def test_neither_names_nor_passwords_are_stored(ada, client):
    sign_in(client, "my secret password", "ada")
    stored = " ".join(FailedSignIn.objects.values_list("key", flat=True))
    assert "secret" not in stored
    assert "ada" not in stored.split()


def test_an_operator_unlocks_an_account(ada):
    guess_passwords(ACCOUNT_FAILURES)
    out = StringIO()
    call_command("unlock", "ada", stdout=out)
    assert out.getvalue() == f"{ACCOUNT_FAILURES} failed sign-ins forgotten\n"
    assert sign_in(Client()).status_code == 302
    with pytest.raises(CommandError) as caught:
        call_command("unlock")
    assert caught.value.returncode == 2


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_admin_has_no_sign_in_page_of_its_own(ada, client, method):
    data = {"username": "ada", "password": PASSWORD}
    address = "/admin/login/?next=/admin/datasets_app/dataset/"
    response = client.get(address) if method == "get" else client.post(address, data)
    assert response.status_code == 302
    assert response["Location"] == f"{LOGIN}?next=/admin/datasets_app/dataset/"
    assert "_auth_user_id" not in client.session


def test_another_sites_address_is_never_a_redirect_target(ada, client):
    response = client.post(f"{LOGIN}?next=https://evil.example/", {"username": "ada", "password": PASSWORD})
    assert response["Location"] == site_settings.LOGIN_REDIRECT_URL or response["Location"] == "/"
