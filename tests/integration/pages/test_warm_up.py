"""A new web process prepares its pages by itself: imports, templates and the map of addresses."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import OperationalError, connection, connections
from gunicorn.workers.gthread import ThreadWorker

from evalsite.lib.ops.gunicorn_worker import WARM_THREADS, WebWorker
from evalsite.lib.sql import load_catalogue

CODE = """
import sys
from evalsite.wsgi import application
application.warm_up()
from django.template import engines
from django.urls import get_resolver
loader, = engines["django"].engine.template_loaders
compiled = str(sorted(loader.get_template_cache))
print(get_resolver()._populated, "scipy.special" in sys.modules, "runs_app/trial_list.html" in compiled)
print([name for name in ("litellm", "matplotlib", "scipy.stats") if name in sys.modules])
from django.urls import URLResolver, reverse
before, built = set(sys.modules), []
URLResolver._populate = lambda self: built.append(self)
reverse("admin:index")  # The navigation of an operator.
from django.core.cache import cache
from django.contrib.messages.storage import default_storage
from django.test import RequestFactory
from django.utils.formats import localize
from grading_app.publish.report.document import read_markdown
request = RequestFactory().get("/")
request.session = {}
default_storage(request)
cache.get("key"), localize(1.5), read_markdown("text"), engines["django"].engine.template_context_processors
print(built, sorted(set(sys.modules) - before))
"""


def test_after_the_warm_up_a_visit_compiles_no_template_and_builds_no_addresses():
    root = Path(__file__).parents[3]
    completed = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines() == ["True True True", "[]", "[] []"]


def test_the_web_process_warms_up_beside_its_first_requests(monkeypatch):
    began, may_end = threading.Event(), threading.Event()

    def warm_up():
        began.set()
        may_end.wait(30)

    worker = object.__new__(WebWorker)
    worker.gateway, worker.wsgi = None, SimpleNamespace(warm_up=warm_up, warm_up_thread=lambda: None)
    worker.tpool = ThreadPoolExecutor(1)
    monkeypatch.setattr(ThreadWorker, "run", lambda self: None)  # The loop that serves requests.
    worker.run()  # It returns before the warm-up ends.
    assert began.wait(30)
    may_end.set()
    join_warm_up()
    worker.tpool.shutdown()


def join_warm_up():
    for thread in threading.enumerate():
        if thread.name == "warm-up":
            thread.join(30)


def test_a_server_that_stops_during_its_warm_up_writes_no_traceback(monkeypatch):
    may_end, errors = threading.Event(), []
    worker = object.__new__(WebWorker)
    worker.gateway, worker.wsgi = None, SimpleNamespace(warm_up=lambda: may_end.wait(30))
    worker.tpool = ThreadPoolExecutor(1)
    monkeypatch.setattr(ThreadWorker, "run", lambda self: None)
    monkeypatch.setattr(threading, "excepthook", errors.append)
    worker.run()
    worker.tpool.shutdown()  # As at the end of `ThreadWorker.run`.
    may_end.set()
    join_warm_up()
    assert errors == []


def test_the_first_threads_of_pages_are_each_prepared_once(monkeypatch):
    prepared, all_prepared = [], threading.Event()

    def warm_up_thread():
        prepared.append(threading.get_ident())
        if len(prepared) == WARM_THREADS:
            all_prepared.set()

    worker = object.__new__(WebWorker)
    worker.gateway, worker.wsgi = None, SimpleNamespace(warm_up=lambda: None, warm_up_thread=warm_up_thread)
    worker.tpool = ThreadPoolExecutor(16)
    monkeypatch.setattr(ThreadWorker, "run", lambda self: None)
    worker.run()
    assert all_prepared.wait(30)
    worker.tpool.shutdown()
    assert len(set(prepared)) == len(prepared) == WARM_THREADS


@pytest.mark.django_db
def test_a_prepared_thread_has_a_connection_whose_server_knows_every_table(django_assert_num_queries):
    with django_assert_num_queries(1) as queries:
        load_catalogue()
    assert connection.is_usable()
    for model in apps.get_models(include_auto_created=True):
        assert f'"{model._meta.db_table}"' in queries[0]["sql"]


def test_a_thread_without_a_database_starts_all_the_same(monkeypatch):
    def fail(*_arguments, **_options):
        raise OperationalError("the server is starting up")

    closed = []
    monkeypatch.setattr(connections["default"], "cursor", fail)
    monkeypatch.setattr(connections["default"], "close", lambda: closed.append(True))
    load_catalogue()
    assert closed, "the next request opens a connection of its own"
