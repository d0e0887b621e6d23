"""Clients that send or read slowly delay no other client; slow clients that make progress are served."""

import hashlib
import http.client
import json
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from evalsite.lib.ops.web_connections import BODY_BYTES, HEAD_S
from tests.system.up.conftest import Site, wait_until

pytestmark = pytest.mark.processes

MANY = 40
LARGE_FILE = "admin/js/vendor/jquery/jquery.js"
SOON_S = 5.0  # A successful attack delays pages by at least HEAD_S.
PASSWORD = "long enough to be a password"
MAKE_USER = (
    "from django.contrib.auth import get_user_model as u; from django.contrib.auth.models import Group;"
    f"one, _ = u().objects.get_or_create(username='ada'); one.set_password({PASSWORD!r}); one.save();"
    "one.groups.add(Group.objects.get(name='Researcher'))"
)

SLOW_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
SLOW_BODY = b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
LARGE_BODY = b"POST /datasets/new/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000000\r\n\r\n"
CHUNKED_BODY = b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
BLANK_LINES = b"\r\n\r\n"


@contextmanager
def open_slow_clients(site: Site, beginning: bytes, *, drip: bytes = b"x"):
    """Open `MANY` connections that begin a request and then send one byte at a time."""
    with ExitStack() as stack:
        clients = []
        for _ in range(MANY):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
            client.sendall(beginning)
            clients.append(client)
        finished = threading.Event()
        thread = threading.Thread(target=drip_until, args=(finished, clients, drip))
        thread.start()
        try:
            yield clients
        finally:
            finished.set()
            thread.join()


def drip_until(finished: threading.Event, clients: list[socket.socket], drip: bytes) -> None:
    while not finished.wait(0.5):
        for client in clients:
            try:
                client.sendall(drip)
            except OSError:
                continue


def time_pages(site: Site) -> float:
    started_at = time.monotonic()
    assert b"ok" in site.get("/healthz")
    assert b"<form" in site.get("/accounts/login/")
    return time.monotonic() - started_at


def time_pages_despite(site: Site, clients: Callable[[], AbstractContextManager[object]]) -> float:
    """Return the seconds until pages arrive beside these clients: the best of three, because the machine may be busy.

    Each measurement has new clients, so that an attack delays each.
    """
    seconds = []
    while len(seconds) < 3 and not (seconds and seconds[-1] < SOON_S):
        with clients():
            seconds.append(time_pages(site))
    return min(seconds)


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("beginning", [b"", SLOW_HEAD, SLOW_BODY, LARGE_BODY, CHUNKED_BODY, BLANK_LINES])
def test_pages_are_served_despite_many_slow_senders(lasting_site: Site, beginning: bytes) -> None:
    assert time_pages_despite(lasting_site, lambda: open_slow_clients(lasting_site, beginning)) < SOON_S


def test_a_request_with_an_endless_header_is_closed(lasting_site: Site) -> None:
    with open_slow_clients(lasting_site, SLOW_HEAD) as clients:
        wait_until(lambda: all(is_closed(client) for client in clients), HEAD_S + 10)


def test_a_large_body_of_an_anonymous_client_is_rejected_before_it_is_sent(lasting_site: Site) -> None:
    with socket.create_connection(("127.0.0.1", lasting_site.port), timeout=60) as client:
        client.sendall(LARGE_BODY)
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")


MAKE_TOKEN = """
from datetime import timedelta
from django.contrib.auth import get_user_model
from django.utils import timezone
from runs_app.models import ApiToken
_, text = ApiToken.create(get_user_model().objects.get(username="ada"), "large", "run", timezone.now() + timedelta(1))
print(text)
"""


def post_large_design(site: Site, token: str) -> tuple[int, str]:
    """Send a design that is larger than the server collects in memory. Return the status and the text."""
    body = json.dumps({"file": "name: large\n" + "# a long comment\n" * 10_000})
    assert len(body) > 2 * BODY_BYTES
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Expect": "100-continue"}
    connection.request("POST", "/api/v1/experiments", body, headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_a_large_body_with_an_access_token_is_read_and_with_a_wrong_one_rejected(lasting_site: Site) -> None:
    lasting_site.manage("shell", "--no-imports", "-c", MAKE_USER)
    token = lasting_site.manage("shell", "--no-imports", "-c", MAKE_TOKEN).strip()
    status, text = post_large_design(lasting_site, token)
    assert status == 422, text
    assert "dataset" in text
    status, text = post_large_design(lasting_site, token[:-1] + ("a" if token[-1] != "a" else "b"))
    assert (status, "access token" in text) == (403, True)


def get_large_file_address() -> str:
    """Return the address of a script of Django's. `up` serves static files under names with their hash."""
    content = Path(str(finders.find(LARGE_FILE))).read_bytes()
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()[:12]
    return f"/static/{LARGE_FILE.removesuffix('.js')}.{digest}.js"


def test_pages_are_served_despite_many_clients_that_do_not_read(lasting_site: Site) -> None:
    """The script is larger than the receive buffer of the clients."""
    path = get_large_file_address()
    assert len(lasting_site.get(path)) > 200_000
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert time_pages_despite(lasting_site, lambda: open_unread_downloads(lasting_site, request)) < SOON_S


@contextmanager
def open_unread_downloads(site: Site, request: bytes):
    """Open `MANY` connections with a small buffer that send the request and do not read the answer."""
    with ExitStack() as stack:
        clients = []
        for _ in range(MANY):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", site.port))
            client.sendall(request)
            clients.append(client)
        yield clients


MAKE_ANSWER = f"""
from tests import factories
experiment = factories.make_experiment("long", sharing="group")
(run,) = factories.make_runs(experiment, status="done")
trial = factories.plan_trials(run, answer=lambda *_: {{"answer": "long", "raw_response": "x" * {12 * 2**20}}})[0]
print(f"/trials/{{trial.pk}}/text/response/")
"""


def test_pages_and_downloads_continue_despite_many_unread_downloads(lasting_site: Site) -> None:
    """The download is much longer than the buffers of the server and the kernel."""
    lasting_site.manage("shell", "--no-imports", "-c", MAKE_USER)
    path = lasting_site.manage("shell", "--no-imports", "-c", MAKE_ANSWER).strip()
    cookies, _ = sign_in(lasting_site)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\n\r\n".encode()

    @contextmanager
    def open_begun_downloads():
        with open_unread_downloads(lasting_site, request) as clients:
            assert [client.recv(15) for client in clients] == [b"HTTP/1.1 200 OK"] * MANY
            yield

    assert time_pages_despite(lasting_site, open_begun_downloads) < SOON_S
    with open_begun_downloads():
        connection = http.client.HTTPConnection("127.0.0.1", lasting_site.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": cookies})
        assert connection.getresponse().read().count(b"x") >= 12 * 2**20


def test_a_slow_reader_receives_the_complete_page(lasting_site: Site) -> None:
    path = get_large_file_address()
    whole = lasting_site.get(path)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", lasting_site.port))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        time.sleep(1)
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.read() == whole


def test_requests_on_one_connection_are_answered_in_order(lasting_site: Site) -> None:
    """The beginning of the second request arrives together with the first."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", lasting_site.port), timeout=60) as client:
        client.sendall(request + request[:20])
        first = http.client.HTTPResponse(client)
        first.begin()
        assert (first.status, json.loads(first.read())["status"]) == (200, "ok")
        client.sendall(request[20:])
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_form_that_expects_100_continue_is_read(lasting_site: Site) -> None:
    head = b"POST /accounts/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", lasting_site.port), timeout=60) as client:
        client.sendall(head)
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"a=b")
        answer = b""
        while b" 403 " not in answer:  # The form has no CSRF token.
            answer += client.recv(4096)


def test_a_slow_upload_is_accepted_despite_other_slow_clients(lasting_site: Site) -> None:
    """The upload takes longer than the limit for request headers."""
    lasting_site.manage("shell", "--no-imports", "-c", MAKE_USER)
    cookies, token = sign_in(lasting_site)
    rows = "".join(f"item-{number},What is {number} plus {number}?\n" for number in range(4000))
    body = encode_multipart({"csrfmiddlewaretoken": token, "slug": "slowly"}, "key,input\n" + rows)
    assert len(body) > 2 * BODY_BYTES
    with open_slow_clients(lasting_site, LARGE_BODY), open_slow_clients(lasting_site, SLOW_BODY):
        connection = http.client.HTTPConnection("127.0.0.1", lasting_site.port, timeout=60)
        connection.putrequest("POST", "/datasets/new/")
        connection.putheader("Cookie", cookies)
        connection.putheader("Content-Type", "multipart/form-data; boundary=border")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        pieces = 24
        step = len(body) // pieces + 1
        for start in range(0, len(body), step):
            connection.send(body[start : start + step])
            time.sleep((HEAD_S + 2) / pieces)
        response = connection.getresponse()
        assert response.status == 302, response.read()
        assert "/datasets/new/upload/" in response.getheader("Location")


def sign_in(site: Site) -> tuple[str, str]:
    """Sign in as a researcher. Return the cookies and a CSRF token."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request("GET", "/accounts/login/")
    page = connection.getresponse()
    token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.read())[1].decode()
    cookie = page.getheader("Set-Cookie").partition(";")[0]
    form = urllib.parse.urlencode({"csrfmiddlewaretoken": token, "username": "ada", "password": PASSWORD})
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/accounts/login/", form, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 302
    cookies = {
        name: value for name, _, value in (line.partition(";")[0].partition("=") for line in get_cookies(answer))
    }
    return "; ".join(f"{name}={value}" for name, value in cookies.items()), cookies["csrftoken"]


def get_cookies(response: http.client.HTTPResponse) -> list[str]:
    return response.msg.get_all("Set-Cookie")


def encode_multipart(fields: dict[str, str], table: str) -> bytes:
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    parts.append(f'Content-Disposition: form-data; name="file"; filename="items.csv"\r\n\r\n{table}')
    return "".join(f"--border\r\n{part}\r\n" for part in parts).encode() + b"--border--\r\n"
