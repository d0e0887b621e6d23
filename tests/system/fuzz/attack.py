"""Sends requests, rolls back their changes, and records faults as findings."""

from __future__ import annotations

import time
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field

from django.db import connection, transaction
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.datastructures import MultiValueDict

MAX_BYTES = 3_000_000
MAX_QUERIES = 120
MAX_SECONDS = 15
FORM = "application/x-www-form-urlencoded"


class Undo(Exception):
    """Rolls back the transaction, so that every request has the same rows."""


@dataclass
class Answer:
    status: int
    text: str
    location: str = ""
    problem: str = ""

    @property
    def is_page(self) -> bool:
        return self.status == 200 and "<html" in self.text[:500]


@dataclass
class Attack:
    """`people` maps roles to users; `private` is a word that only the roles in `insiders` may read."""

    people: dict
    private: str
    insiders: frozenset
    findings: list[str] = field(default_factory=list)
    sent: int = 0
    most_queries: tuple[int, str] = (0, "")
    largest: tuple[int, str] = (0, "")
    slowest: tuple[float, str] = (0.0, "")

    def __post_init__(self):
        self.clients = {}
        for role, user in self.people.items():
            self.clients[role] = Client(raise_request_exception=False)
            self.clients[role].force_login(user)
        self.clients[None] = Client(raise_request_exception=False)
        self.cookies = {role: deepcopy(client.cookies) for role, client in self.clients.items()}

    def get(self, role, address, **extra):
        return self.send(role, "GET", address, **extra)

    def post(self, role, address, body, content_type=FORM, **extra):
        return self.send(role, "POST", address, body, content_type, **extra)

    def send(self, role, method, address, body=b"", content_type=FORM, *, keep=False, **extra) -> Answer:
        """Send one request and add its faults to `findings`. Its changes are rolled back unless `keep` is true."""
        self.sent += 1
        description = f"{role} {method} {address[:200]} {str(body)[:160] if body else ''} {extra or ''}"
        client, started_at = self.clients[role], time.perf_counter()
        answer = Answer(0, "")
        try:
            with transaction.atomic(), CaptureQueriesContext(connection) as queries:
                response = client.generic(method, address, body, content_type=content_type, **extra)
                answer = self._read(response)
                if not keep:
                    raise Undo
        except Undo:
            pass
        client.cookies = deepcopy(self.cookies[role])
        self._check_answer(role, description, answer, len(queries), time.perf_counter() - started_at)
        return answer

    @staticmethod
    def _read(response) -> Answer:
        problem = ""
        try:
            body = b"".join(response.streaming_content) if response.streaming else response.content
        except Exception as error:  # noqa: BLE001 - any error within a file is a finding.
            body, problem = b"", f"broke while it was sent: {error!r}"
        if response.status_code >= 500:
            kind, error, trace = getattr(response, "exc_info", None) or (None, "no exception", None)
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
            problem = f"{response.status_code} {kind.__name__ if kind else ''} {str(error)[:200]} at {where}"
        return Answer(response.status_code, body.decode("utf-8", "replace"), response.get("Location", ""), problem)

    def _check_answer(self, role, description, answer, queries, seconds):
        size = len(answer.text)
        self.most_queries = max(self.most_queries, (queries, description))
        self.largest = max(self.largest, (size, description))
        self.slowest = max(self.slowest, (seconds, description))
        if answer.problem:
            self.findings.append(f"{description}\n    {answer.problem}")
        if size > MAX_BYTES:
            self.findings.append(f"{description}\n    answered with {size:,} characters")
        if queries > MAX_QUERIES:
            self.findings.append(f"{description}\n    made {queries} queries")
        if seconds > MAX_SECONDS:
            self.findings.append(f"{description}\n    took {seconds:.1f} s")
        if role not in self.insiders and self.private in answer.text:
            position = answer.text.index(self.private)
            self.findings.append(
                f"{description}\n    shows a private name: {answer.text[max(0, position - 80) : position + 40]!r}"
            )

    def report(self) -> str:
        lines = [f"{self.sent} requests, {len(self.findings)} findings", *self.findings[:40]]
        lines += [
            f"{name}: {value}"
            for name, value in (
                ("most queries", self.most_queries),
                ("largest", self.largest),
                ("slowest", self.slowest),
            )
        ]
        return "\n".join(lines)


@contextmanager
def record_names(names: set):
    """Add to `names` every request parameter that a view, a form or a filter reads by name."""
    originals = {name: getattr(MultiValueDict, name) for name in ("get", "getlist", "__getitem__")}

    def recording(original):
        def method(self, key, *args, **kwargs):
            if isinstance(self, QueryDict) and isinstance(key, str):
                names.add(key)
            return original(self, key, *args, **kwargs)

        return method

    for name, original in originals.items():
        setattr(MultiValueDict, name, recording(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(MultiValueDict, name, original)
