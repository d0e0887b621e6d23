"""An attacker who can write to the task queue tables cannot make the site run code other than its own tasks."""

import base64
import os
import pickle
import re
from pathlib import Path

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.conf import Conf
from django_q.models import OrmQ, Success, Task
from django_q.monitor import save_task
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from runs_app.taskqueue import broker
from runs_app.taskqueue.broker import Broker
from runs_app.taskqueue.task_payloads import FUNCTIONS, TaskRefused, check_task, load_plain

ROOT = Path(__file__).resolve().parents[3]
MAINTENANCE_TASK = broker.MAINTENANCE_TASK


class FolderMaker:
    """An object whose pickle creates a folder if it is loaded without restrictions."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def no_polling(db, monkeypatch):
    monkeypatch.setattr(Conf, "POLL", 0)


def sign_task(**changes):
    task = {"id": "1", "name": "one", "func": MAINTENANCE_TASK, "args": (), "kwargs": {}, "started": timezone.now()}
    return SignedPackage.dumps(task | changes)


def queue_payload(payload):
    return OrmQ.objects.create(key=Conf.CLUSTER_NAME, payload=payload, lock=timezone.now())


# --- rows that name other code ---------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_database_rejects_schedules_and_the_queue_runs_none():
    columns = "func, args, schedule_type, repeats, next_run, name"
    with pytest.raises(IntegrityError, match="django_q_schedule_stays_empty"), transaction.atomic():
        connection.cursor().execute(
            f"INSERT INTO django_q_schedule ({columns}) VALUES ('os.system', '(''id'',)', 'O', -1, now(), 'x')"
        )
    assert Conf.SCHEDULER is False


@pytest.mark.django_db
def test_the_database_rejects_hooks_and_a_saved_task_calls_none(tmp_path):
    task = Task(
        id="1" * 32, name="one", func=MAINTENANCE_TASK, started=timezone.now(), stopped=timezone.now(), success=True
    )
    task.save()
    with pytest.raises(IntegrityError, match="django_q_task_has_no_hook"), transaction.atomic():
        connection.cursor().execute("UPDATE django_q_task SET hook = 'os.remove'")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_q_task DROP CONSTRAINT django_q_task_has_no_hook")
    called = []
    task.hook = called.append
    task.save = lambda **_: None
    from django.db.models.signals import post_save

    post_save.send(sender=Task, instance=task, created=False)
    assert called == []


@pytest.mark.parametrize(
    "changes",
    [
        {"func": "os.system", "args": ("true",)},
        {"func": "runs_app.tasks.wake"},
        {"func": os.getpid},
        {"hook": "os.remove"},
        {"chain": [("os.system", ("true",))]},
        {"sync": True},
        {"cached": True},
        {"group": "a", "iter_count": 2},
    ],
    ids=repr,
)
def test_a_signed_task_that_names_other_code_is_rejected_and_removed(no_polling, changes, caplog):
    queue_payload(sign_task(**changes))
    queue_payload(sign_task(id="2"))
    assert Broker().dequeue() == []
    assert "was refused and removed" in caplog.text
    ((pk, _),) = Broker().dequeue()
    assert OrmQ.objects.get().pk == pk, "the next task is taken"


def test_loading_a_signed_pickle_runs_no_code(no_polling, tmp_path):
    queue_payload(sign_task(args=(FolderMaker(tmp_path / "made"),)))
    assert Broker().dequeue() == []
    assert not OrmQ.objects.exists()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("payload", ["", "no payload", "a:b:c"])
def test_an_unsigned_payload_is_rejected_and_removed(no_polling, payload):
    queue_payload(payload)
    assert Broker().dequeue() == []
    assert not OrmQ.objects.exists()


@pytest.fixture
def forged_result_folder(db, tmp_path):
    """Store a finished task, which is not signed, whose pickles create a folder. Return the path of the folder."""
    Success.objects.create(
        id="f" * 32, name="planted", func=MAINTENANCE_TASK, started=timezone.now(), stopped=timezone.now(), success=True
    )
    bad = base64.b64encode(pickle.dumps(FolderMaker(tmp_path / "made"))).decode()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_q_task SET args = %s, kwargs = %s, result = %s", [bad, bad, bad])
    return tmp_path / "made"


def test_a_forged_result_runs_no_code_when_the_next_task_is_saved(forged_result_folder, monkeypatch):
    monkeypatch.setattr("django_q.monitor.close_old_django_connections", lambda: None)
    task = SignedPackage.loads(sign_task(result=3, success=True, stopped=timezone.now()))
    save_task(task, Broker())
    assert Success.objects.get(id="1").result == 3
    assert not forged_result_folder.exists()


def test_a_forged_result_runs_no_code_when_a_superuser_views_or_requeues_it(forged_result_folder, client):
    client.force_login(User.objects.create_superuser("root", password="x"))
    list_page = client.get(reverse("admin:django_q_success_changelist"))
    detail_page = client.get(reverse("admin:django_q_success_change", args=["f" * 32]))
    assert (list_page.status_code, detail_page.status_code) == (200, 200)
    assert "Not shown" in detail_page.content.decode()
    form = {"action": "requeue", ACTION_CHECKBOX_NAME: "f" * 32}
    answer = client.post(reverse("admin:django_q_success_changelist"), form, follow=True)
    assert "Task planted was not queued" in answer.content.decode()
    assert not OrmQ.objects.exists()
    assert not forged_result_folder.exists()


def test_a_superuser_can_requeue_only_listed_tasks(db, client):
    client.force_login(User.objects.create_superuser("root", password="x"))
    for key, function in (("a", MAINTENANCE_TASK), ("b", "os.system")):
        Success.objects.create(
            id=key * 32, name=function, func=function, args=("true",), kwargs={}, started=timezone.now(),
            stopped=timezone.now(), success=True,
        )  # fmt: skip
    form = {"action": "requeue", ACTION_CHECKBOX_NAME: ["a" * 32, "b" * 32]}
    answer = client.post(reverse("admin:django_q_success_changelist"), form, follow=True)
    assert "Task os.system was not queued" in answer.content.decode()
    assert [row.task["func"] for row in OrmQ.objects.all()] == [MAINTENANCE_TASK]


# --- tasks of the site -----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_unlisted_function_cannot_be_queued():
    with pytest.raises(TaskRefused, match=r"os\.getpid"):
        async_task("os.getpid")
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
def test_a_listed_task_is_accepted_with_its_arguments(no_polling):
    async_task(MAINTENANCE_TASK, 7, ["text", None], by={"a": 1.5}, timeout=60, save=False, cluster="evalsite")
    ((_, payload),) = Broker().dequeue()
    task = SignedPackage.loads(payload)
    check_task(task)
    assert (task["func"], task["args"], task["kwargs"]) == (MAINTENANCE_TASK, (7, ["text", None]), {"by": {"a": 1.5}})


def test_every_task_named_in_the_code_is_listed_and_exists():
    code = [
        path
        for app in ("evalsite", "datasets_app", "runs_app", "grading_app")
        for path in (ROOT / app).rglob("*.py")
        if path.name != "task_payloads.py"
    ]
    named = {name for path in code for name in re.findall(r'"(\w+\.tasks\.\w+)"', path.read_text())}
    assert named == FUNCTIONS
    assert all(callable(import_string(name)) for name in FUNCTIONS)


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", (1, [2.5, {"a": {3}}]), timezone.now(), True])
def test_plain_values_survive_pickling(value):
    assert load_plain(pickle.dumps(value, protocol=-1)) == value


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps("text")[:-3], pickle.dumps(os.system)])
def test_a_pickle_that_is_damaged_or_names_code_is_rejected(data):
    with pytest.raises(TaskRefused):
        load_plain(data)
