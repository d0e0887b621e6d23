"""A one-time link makes the first operator, or signs in to its account. It works once, within an hour."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from threading import Barrier

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from evalsite.lib import permissions
from evalsite.lib.models import SignInLink
from evalsite.lib.web.sign_in import MAX_GUESSES, build_link
from tests import factories

pytestmark = pytest.mark.django_db
PASSWORD = "long enough to be a password"
URL = "http://127.0.0.1:8000/"


@pytest.fixture(autouse=True)
def use_quick_hashes(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def issue(user=None):
    return SignInLink.objects.issue(user)


def create_account(code, *, client=None, name="ada", password=PASSWORD, address="10.0.0.1"):
    fields = {"code": code, "username": name, "password": password}
    return (client or Client()).post("/welcome/", fields, REMOTE_ADDR=address)


def test_the_link_makes_the_first_operator_and_signs_in(client):
    response = create_account(issue(), client=client)
    assert response.status_code == 302
    user = User.objects.get()
    assert (user.username, user.is_superuser, user.check_password(PASSWORD)) == ("ada", True, True)
    assert permissions.is_operator(user)
    assert client.get("/").status_code == 200


def test_the_code_is_in_the_fragment_of_the_address_and_only_its_hash_is_stored():
    link = build_link(URL)
    address, _, code = link.partition("#")
    assert address == "http://127.0.0.1:8000/welcome/"
    assert len(code) >= 40
    assert code not in str(SignInLink.objects.values_list())


def test_behind_a_proxy_the_link_names_the_public_host(settings):
    settings.HTTPS, settings.ALLOWED_HOSTS = True, [".lab.example"]
    assert build_link(URL).startswith("https://lab.example/welcome/#")


def test_the_whole_address_may_be_pasted_as_the_code():
    assert create_account(f" {build_link(URL)} ").status_code == 302


def test_a_link_works_once():
    code = issue(factories.make_user("demo", superuser=True))
    client = Client()
    assert client.post("/welcome/", {"code": code}).status_code == 302
    assert int(client.session["_auth_user_id"]) == User.objects.get().pk
    response = Client().post("/welcome/", {"code": code})
    assert "was used" in response.content.decode()
    assert "sessionid" not in response.cookies


def test_a_link_is_valid_for_an_hour():
    code, start = issue(), timezone.now()
    with time_machine.travel(start + timedelta(minutes=61), tick=False):
        response = create_account(code)
    assert "has expired" in response.content.decode()
    with time_machine.travel(start + timedelta(minutes=58), tick=False):
        assert create_account(code).status_code == 302


def test_a_refused_password_does_not_use_the_link(client):
    code = issue()
    response = create_account(code, client=client, password="12345678")
    page = response.content.decode()
    assert "too common" in page
    assert 'value="ada"' in page
    assert code in page, "it stays in the form"
    assert create_account(code, client=client).status_code == 302


def test_a_second_link_makes_no_second_first_account():
    first, second = issue(), issue()
    assert create_account(first).status_code == 302
    assert create_account(second, name="eve").status_code == 200
    assert User.objects.count() == 1


def test_a_link_of_an_inactive_account_signs_nobody_in():
    user = factories.make_user("gone")
    code = issue(user)
    User.objects.update(is_active=False)
    response = Client().post("/welcome/", {"code": code})
    assert response.status_code == 200
    assert "sessionid" not in response.cookies


def test_wrong_codes_are_limited_by_address_and_cannot_lock_out_another_one():
    code = issue()
    for _ in range(MAX_GUESSES):
        assert create_account("a" * 43).status_code == 200
    refused = create_account(code)
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    assert not User.objects.exists()
    assert create_account(code, address="10.0.0.2").status_code == 302


def test_opening_the_page_uses_nothing(client):
    code = issue()
    assert client.get("/welcome/").status_code == 200
    assert create_account(code).status_code == 302


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("n_links", [1, 2])
def test_of_several_people_at_once_one_makes_the_first_account(n_links):
    codes = [issue() for _ in range(n_links)]
    barrier = Barrier(6)

    def try_one(number):
        barrier.wait(30)
        try:
            return create_account(codes[number % n_links], name=f"person{number}").status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(try_one, range(6)))
    assert statuses.count(302) == 1
    assert User.objects.count() == 1


def test_the_sign_in_page_of_a_site_without_accounts_says_what_to_do(client):
    page = client.get("/accounts/login/").content.decode()
    assert "no accounts yet" in page
    assert "manage.py sign_in_link" in page
    assert 'name="password"' not in page


def test_the_command_prints_a_link_for_the_first_account_or_for_a_named_one():
    output = StringIO()
    call_command("sign_in_link", stdout=output)
    assert create_account(output.getvalue().strip()).status_code == 302
    with pytest.raises(CommandError, match="name the account"):
        call_command("sign_in_link")
    with pytest.raises(CommandError, match="there is no user eve"):
        call_command("sign_in_link", "eve")
    output = StringIO()
    call_command("sign_in_link", "ada", stdout=output)
    assert Client().post("/welcome/", {"code": output.getvalue().strip()}).status_code == 302
