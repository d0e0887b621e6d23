"""Every page accepts any value of every parameter that it reads."""

import os
from itertools import islice, product

import pytest
from django.core.signals import request_started
from django.db import close_old_connections
from django.test import RequestFactory

from tests.system.fuzz import hostile
from tests.system.fuzz.attack import record_names
from tests.system.fuzz.conftest import OUTSIDERS
from tests.system.fuzz.pages import parse_page

pytestmark = [pytest.mark.django_db, pytest.mark.ignore_template_errors]  # Templates of Django use undefined variables.
# Parameters of django_tables2, the admin's lists and django-filter, which pages do not name.
COMMON_PARAMETERS = ["page", "per_page", "sort", "next", "q"]
ADMIN_PARAMETERS = ["o", "p", "e", "all", "_popup", "_to_field", "id__in", "pk", "status__exact", "created_at__year"]


def find_targets(attack, addresses):
    """Return (role, address, parameter) for each parameter that a page reads or links to."""
    targets = []
    for role, address in addresses:
        names = set()
        with record_names(names):
            answer = attack.get(role, address)
        names |= parse_page(address, answer.text).parameters if answer.is_page else set()
        names |= set(ADMIN_PARAMETERS if address.startswith("/admin/") else COMMON_PARAMETERS)
        names.discard("csrfmiddlewaretoken")
        targets += [(role, address, name) for name in sorted(names)]
    return targets


def test_no_parameter_value_causes_a_server_error(attack, addresses, requests_wanted, seed, chance):
    targets = find_targets(attack, addresses)
    assert len(targets) > 300, "the pages' parameters were not found"
    cases = hostile.order_in_rounds(targets, hostile.VALUES, seed)
    for number, (role, address, name), value in islice(cases, requests_wanted):
        shapes = hostile.list_query_shapes(name, value)
        sender = role if number % 3 == 0 else chance.choice([role, *OUTSIDERS])
        attack.get(sender, f"{address}?{shapes[0] if number % 2 == 0 else chance.choice(shapes)}")
    print(f"\n{len(targets)} parameters, {attack.report()}")
    assert not attack.findings, attack.report()


def test_no_page_shows_a_private_name_to_an_outsider(attack, addresses):
    for _, address in addresses:
        for role in (*OUTSIDERS, "curator"):
            attack.get(role, address)
    assert not attack.findings, attack.report()


def test_no_path_causes_a_server_error(attack, addresses, seed, chance, requests_wanted):
    """One piece of a path is replaced by a hostile one."""
    for _, address in addresses:
        pieces = address.strip("/").split("/")
        for position in range(len(pieces)):
            if attack.sent >= requests_wanted // 2:
                break
            value = chance.choice([text for text in hostile.VALUES if len(text) < 6000])
            changed = [*pieces[:position], hostile.encode(value).replace("/", "%2F") or "-", *pieces[position + 1 :]]
            attack.get("superuser", f"/{'/'.join(changed)}/")
    assert not attack.findings, attack.report()


HEADERS = [
    {"HTTP_COOKIE": 'sessionid="abcdefgh\\000ijklmnop"'},
    {"HTTP_COOKIE": "tz=" + "%00" * 20},
    {"HTTP_COOKIE": "tz=../../etc/passwd"},
    {"HTTP_COOKIE": "csrftoken=\x01\x02; messages=[[[["},
    {"HTTP_COOKIE": 'messages="' + "[" * 3000 + '"'},
    {"HTTP_HX_REQUEST": "true", "HTTP_HX_CURRENT_URL": "%%%"},
    {"HTTP_HX_REQUEST": "true", "HTTP_HX_TRIGGER": "\x80"},
    {"HTTP_HOST": "evil.example"},
    {"HTTP_HOST": "a b"},
    {"HTTP_X_FORWARDED_PROTO": "\x7f"},
    {"HTTP_ACCEPT_LANGUAGE": "x" * 5000},
    {"HTTP_IF_MODIFIED_SINCE": "nonsense"},
    {"HTTP_IF_NONE_MATCH": '"' + "x" * 5000},
    {"HTTP_RANGE": "bytes=5-1,-,99999999999999999999-"},
    {"HTTP_REFERER": "http://[::1"},
    {"HTTP_ORIGIN": "null"},
    {"CONTENT_LENGTH": "-1"},
]


@pytest.mark.quick
def test_no_header_causes_a_server_error(attack, world):
    addresses = ("/", "/trials/", f"/trials/{world.trial.pk}/", "/datasets/", "/accounts/login/")
    for headers, address in product(HEADERS, addresses):
        attack.get("owner", address, **headers)
        attack.post("owner", address, b"a=1", **headers)
    assert not attack.findings, attack.report()


BODIES = [
    b"name=%ff%fe&a=1",
    b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--",
    b"[[[[",
    "ä".encode("utf-16"),
]


@pytest.mark.quick
def test_no_content_type_causes_a_server_error(attack, world):
    archive = f"/experiments/{world.experiment.slug}/archive/"
    addresses = ("/accounts/login/", "/datasets/new/", "/experiments/new/", "/admin/runs_app/prompt/add/", archive)
    for media_type, address in product(hostile.MEDIA_TYPES, addresses):
        for body in BODIES:
            attack.post("superuser", address, body, media_type)
        attack.get("superuser", f"{address}?q=a", CONTENT_TYPE=media_type)
    assert not attack.findings, attack.report()


@pytest.fixture
def open_connection():
    """Keep the test's connection at the start of a request, as Django's test client does."""
    request_started.disconnect(close_old_connections)
    yield
    request_started.connect(close_old_connections)


@pytest.fixture
def own_umask():
    """Undo what the import of the WSGI application sets: other tests make folders for another user."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


@pytest.mark.quick
@pytest.mark.parametrize("codec", hostile.BYTE_CODECS)
def test_a_charset_that_cannot_decode_text_is_ignored(codec, db, open_connection, own_umask):
    """Call the WSGI application directly, because the test client creates another kind of request."""
    from evalsite.wsgi import application

    status = []
    environ = {
        **RequestFactory().get("/accounts/login/?next=%2F").environ,
        "CONTENT_TYPE": f"application/x-www-form-urlencoded; charset={codec}",
    }
    body = b"".join(application(environ, lambda line, headers: status.append(line)))
    assert status == ["200 OK"]
    assert b"<form" in body
