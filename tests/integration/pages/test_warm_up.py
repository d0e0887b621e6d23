"""A new web process prepares its pages by itself: imports, templates and the map of addresses."""

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

from gunicorn.workers.gthread import ThreadWorker

from evalsite.lib.ops.gunicorn_worker import WebWorker

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
    worker.gateway, worker.wsgi = None, SimpleNamespace(warm_up=warm_up)
    monkeypatch.setattr(ThreadWorker, "run", lambda self: None)  # The loop that serves requests.
    worker.run()  # It returns before the warm-up ends.
    assert began.wait(30)
    may_end.set()
