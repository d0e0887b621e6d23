"""Messages when runs end, stop or reach the budget: written once, sent by the queue, signed, and tried again."""

import hashlib
import hmac
import json
import socketserver
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import time_machine
from django.core import mail
from django.urls import reverse
from django.utils import timezone

from evalsite.lib import permissions
from runs_app import tasks
from runs_app.models import Notification, NotificationChoice, Run
from runs_app.notifications import find_webhook_problem, notice_events, send_due
from tests import factories
from tests.factories.http_servers import serve


class ReceivingServer(ThreadingHTTPServer):
    """A receiver of webhooks. answers: the next statuses; 204 without any."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiver)
        self.received: list = []
        self.answers: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Receiver(BaseHTTPRequestHandler):
    server: ReceivingServer

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((dict(self.headers), body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver(settings):
    with serve(ReceivingServer()) as server:
        settings.WEBHOOK_HOSTS = [f"127.0.0.1:{server.server_port}"]
        yield server


@pytest.fixture
def experiment(db, settings):
    settings.EMAIL_HOST = "mail.example.org"
    owner = factories.make_user("ana", permissions.RESEARCHER, email="ana@example.org")
    experiment = factories.make_experiment("pilot", owner=owner, models=[factories.make_model(n) for n in ("a", "b")])
    factories.make_runs(experiment)
    return experiment


class MailServer(socketserver.ThreadingTCPServer):
    received: list[str]


class MailSession(socketserver.StreamRequestHandler):
    """A session of a mail server that accepts every message."""

    server: MailServer

    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        while command := self.rfile.readline().strip():
            if command.upper() == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.received.append(b"".join(lines).decode())
            self.wfile.write(b"221 bye\r\n" if command.upper() == b"QUIT" else b"250 OK\r\n")
            if command.upper() == b"QUIT":
                return


def test_mail_goes_through_a_mail_server_and_waits_while_there_is_none(experiment, settings):
    server = MailServer(("127.0.0.1", 0), MailSession)
    server.received = []
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.server_address[1]
    with serve(server):
        choose(experiment.owner)
        finish(experiment)
        notice_events()
        assert send_due() == 1
        assert "Subject: pilot: All runs have ended" in server.received[0]

    move(experiment, "stopped")
    notice_events()
    assert send_due() == 0
    assert "ConnectionRefusedError" in Notification.objects.latest("pk").problem


def choose(user, **fields):
    return NotificationChoice.objects.update_or_create(user=user, defaults={"by_mail": True, **fields})[0]


def move(experiment, status, *, position=None, **fields):
    """Change the status of one run or of all, with its history."""
    runs = Run.objects.filter(experiment=experiment).order_by("pk")
    keys = [run.pk for run in runs][slice(position, None if position is None else position + 1)]
    Run.objects.filter(pk__in=keys).transition(
        sources=[run.status for run in runs], target=status, by="a worker", reason="as the test says", **fields
    )


def finish(experiment, **fields):
    move(experiment, "done", finished_at=timezone.now(), **fields)
    Run.objects.filter(experiment=experiment, status="done").update(n_done=4)


def list_messages():
    return [(row.user.username, row.event, row.channel) for row in Notification.objects.order_by("pk")]


def test_the_end_is_told_once_and_only_after_the_last_run(experiment):
    choose(experiment.owner)
    move(experiment, "running")
    assert notice_events() == 0
    finish(experiment, position=0)
    assert notice_events() == 0
    finish(experiment)
    assert (notice_events(), notice_events()) == (1, 0)
    assert list_messages() == [("ana", "end", "mail")]
    assert send_due() == 1
    assert [(message.to, message.subject) for message in mail.outbox] == [
        (["ana@example.org"], "pilot: All runs have ended")
    ]
    assert "8 calls done" in mail.outbox[0].body
    assert reverse("experiment_results", args=["pilot"]) in mail.outbox[0].body
    assert send_due() == 0


def test_a_stop_and_a_budget_are_told_while_other_runs_go_on_and_told_again_after_a_resumption(experiment):
    choose(experiment.owner)
    move(experiment, "running")
    notice_events()
    move(experiment, "stopped", position=0)
    assert notice_events() == 1
    move(experiment, "running", position=0)
    assert notice_events() == 0
    move(experiment, "paused", position=1, paused_by_budget=True)
    move(experiment, "stopped", position=0)
    assert notice_events() == 2
    assert [event for _, event, _ in list_messages()] == ["stop", "budget", "stop"]


def test_each_person_chooses_events_and_people_without_access_hear_nothing(experiment):
    viewer, stranger, quiet = (factories.make_user(name, permissions.VIEWER, email=f"{name}@example.org")
                               for name in ("vera", "stan", "quinn"))  # fmt: skip
    for user in (viewer, stranger, quiet):
        experiment.starred_by.add(user)
    experiment.shared_with.add(viewer, quiet)
    choose(viewer)
    choose(stranger)
    choose(quiet, on_end=False)
    finish(experiment)
    notice_events()
    assert list_messages() == [("vera", "end", "mail")]


def test_old_events_are_not_told_to_a_person_who_asks_later(experiment):
    with time_machine.travel(timezone.now() - timedelta(days=2)):
        move(experiment, "stopped")
    choose(experiment.owner)
    assert notice_events() == 0
    assert list_messages() == []


def test_a_webhook_is_signed_and_its_receiver_can_check_it(experiment, receiver):
    choice = choose(experiment.owner, by_mail=False, webhook_url=receiver.url)
    finish(experiment)
    notice_events()
    assert send_due() == 1
    ((headers, body),) = receiver.received
    signed = f"{headers['X-Evalsite-Timestamp']}.".encode() + body
    expected = hmac.new(choice.webhook_secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Evalsite-Signature"] == f"sha256={expected}"
    payload = json.loads(body)
    assert (payload["event"], payload["experiment"]) == ("end", "pilot")
    assert payload["id"] == headers["X-Evalsite-Id"]


def test_a_failing_receiver_is_tried_again_later_and_not_for_ever(experiment, receiver):
    choose(experiment.owner, by_mail=False, webhook_url=receiver.url)
    receiver.answers = [500, 302, *[503] * 9]
    finish(experiment)
    notice_events()
    assert (send_due(), send_due(), len(receiver.received)) == (0, 0, 1)
    now = timezone.now()
    for days in range(1, 10):
        with time_machine.travel(now + timedelta(days=days)):
            send_due()
    (message,) = Notification.objects.all()
    assert (message.n_tries, len(receiver.received), message.state) == (6, 6, "failed")
    assert message.problem == "the receiver answered 503"


def test_a_redirect_is_not_followed(experiment, receiver):
    choose(experiment.owner, by_mail=False, webhook_url=receiver.url)
    receiver.answers = [307]
    finish(experiment)
    notice_events()
    assert send_due() == 0
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://hooks.example.org/x", ""),
        ("https://hooks.example.org:8443/x", ""),
        ("http://hooks.example.org/x", "https://"),
        ("https://evil.example.org/x", "not on the list"),
        ("https://user:secret@hooks.example.org/x", "must not hold"),
        ("http://127.0.0.1:5432/", "not on the list"),
        ("http://169.254.169.254/latest", "not on the list"),
        ("https://hooks.example.org@evil.example.org/", "must not hold"),
        ("ftp://hooks.example.org/x", "https://"),
        ("https://[bad", "not a valid address"),
    ],
)
def test_only_listed_hosts_receive_requests(settings, url, problem):
    settings.WEBHOOK_HOSTS = ["hooks.example.org"]
    found = find_webhook_problem(url)
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_host_that_was_removed_from_the_list_gets_no_request(experiment, receiver, settings):
    choose(experiment.owner, by_mail=False, webhook_url=receiver.url)
    finish(experiment)
    notice_events()
    settings.WEBHOOK_HOSTS = []
    assert send_due() == 0
    assert receiver.received == []


def test_the_page_saves_the_choice_and_sends_a_test(client, experiment, receiver, monkeypatch):
    enqueued = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name: enqueued.append(name))
    client.force_login(experiment.owner)
    address = reverse("notifications")
    assert client.get(address).status_code == 200
    refused = client.post(address, {"on_end": "on", "webhook_url": "https://evil.example.org/"})
    assert "not on the list" in refused.content.decode()
    client.post(address, {"on_end": "on", "by_mail": "on", "webhook_url": receiver.url})
    choice = NotificationChoice.objects.get()
    assert (choice.events, choice.channels) == ({"end"}, ["mail", "webhook"])
    client.post(reverse("notifications_test"))
    assert enqueued == ["runs_app.tasks.send_notifications"]
    assert tasks.send_notifications() == 2
    assert (len(mail.outbox), len(receiver.received)) == (1, 1)
    assert "This is a test." in client.get(address).content.decode()
