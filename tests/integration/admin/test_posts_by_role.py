"""What each role may post in the admin. Every registered model and every action has a line here, and all are tried."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_q.models import Failure, OrmQ, Success, Task

from datasets_app.models import BackgroundJob, Dataset, Item
from evalsite.lib import permissions
from evalsite.lib.history import StatusChange
from grading_app.grading.judging.graders import get_or_create_default_sampler
from grading_app.models import Panel
from runs_app.models import ProviderBatch, Worker
from tests import factories
from tests.factories.drafts import make_draft_dimension, make_draft_sampler
from tests.factories.judges import make_grader, make_starter_rubric
from tests.factories.queues import make_queue, make_rater

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.slow,
    pytest.mark.ignore_template_errors,  # Templates of Django's own admin.
]

PEOPLE = ("rater", "viewer", "researcher", "curator", "operator", "superuser")
AUTHORS = ("researcher", "curator", "superuser")
CURATORS = ("curator", "superuser")
OPERATORS = ("operator", "superuser")
NOBODY = ()
VERSIONED = {
    "add": AUTHORS, "change": AUTHORS, "delete": CURATORS, "approve": CURATORS, "archive": AUTHORS,
    "new_version": AUTHORS,
}  # fmt: skip
READ_ONLY = {"add": NOBODY, "change": NOBODY, "delete": NOBODY}

MAY: dict[str, dict[str, tuple[str, ...]]] = {
    "auth.Group": dict.fromkeys(READ_ONLY, ("superuser",)),
    "auth.User": dict.fromkeys(READ_ONLY, ("superuser",)),
    "datasets_app.BackgroundJob": dict.fromkeys(READ_ONLY, NOBODY),
    "datasets_app.Dataset": {
        "add": NOBODY, "change": AUTHORS, "delete": CURATORS,
        "approve": CURATORS, "archive": CURATORS, "duplicate": AUTHORS,
    },
    "datasets_app.Item": {"add": NOBODY, "change": AUTHORS, "delete": NOBODY, "exclude": AUTHORS, "include": AUTHORS},
    "lib.StatusChange": READ_ONLY,
    "django_q.Failure": {"add": NOBODY, "change": ("superuser",), "delete": ("superuser",)},
    "django_q.OrmQ": {"add": NOBODY, "change": ("superuser",), "delete": ("superuser",)},
    "django_q.Success": {"add": NOBODY, "change": ("superuser",), "delete": ("superuser",)},
    "grading_app.Grader": {"add": AUTHORS, "change": AUTHORS, "delete": CURATORS, "archive": AUTHORS},
    "grading_app.Panel": {"add": AUTHORS, "change": AUTHORS, "delete": CURATORS},
    "grading_app.RaterAssignment": READ_ONLY,
    "grading_app.RatingQueue": READ_ONLY,
    "grading_app.Rubric": VERSIONED,
    "runs_app.Dimension": VERSIONED,
    "runs_app.Endpoint": dict.fromkeys(READ_ONLY, OPERATORS),
    "runs_app.Experiment": READ_ONLY,
    "runs_app.LanguageModel": dict.fromkeys(READ_ONLY, OPERATORS),
    "runs_app.Prompt": VERSIONED,
    "runs_app.ProviderBatch": {**READ_ONLY, "cancel": OPERATORS},
    "runs_app.Run": READ_ONLY,
    "runs_app.Sampler": VERSIONED,
    "runs_app.Worker": READ_ONLY,
}  # fmt: skip
"""Roles that may add, change and delete rows of a model, and perform each of its actions. Others get 403 or 404."""


@pytest.fixture
def rows():
    """Create a row of every model in the admin. They are drafts and unused, so that their state forbids nothing."""
    get_or_create_default_sampler()  # The form of a judge does it.
    owner = factories.make_user("owner", permissions.RESEARCHER)
    experiment = factories.make_experiment("study", owner=owner)
    (run,) = factories.make_runs(experiment)
    panel = Panel.objects.create(name="both", rule="mean")
    panel.graders.set([make_grader("other"), make_grader("third")])
    queue = make_queue(owner=owner)
    draft = Dataset.objects.create(slug="draft")
    spare = factories.make_endpoint("spare")
    now = timezone.now()
    for key, is_good in (("a" * 32, True), ("b" * 32, False)):
        Task.objects.create(id=key, name=key[:1], success=is_good, func="f", started=now, stopped=now)
    created = [
        draft, Item.objects.create(dataset=draft, key="k", position=1, input="?"), StatusChange.objects.first(),
        make_grader("mine"), panel, make_rater(queue), queue, make_starter_rubric(name="draft", status="draft"),
        make_draft_dimension("draft"), factories.make_endpoint("unused"), experiment,
        factories.make_model("unused", endpoint=spare), factories.make_prompt("draft", status="draft"), run,
        make_draft_sampler("draft"), ProviderBatch.objects.create(run=run, endpoint=spare),
        Worker.objects.create(name="host:1:0", host="host", pid=1), Group.objects.create(name="empty"), owner,
        Success.objects.get(pk="a" * 32), Failure.objects.get(pk="b" * 32),
        OrmQ.objects.create(key="evalsite", payload="p"),
        BackgroundJob.objects.create(subject="upload", kind="import", task="a.task", timeout_s=60, actor="owner"),
    ]  # fmt: skip
    return {row._meta.label: row for row in created}


def find_allowed(client: Client, row) -> set[str]:
    """Return what the client may post. Forms are sent empty, and questions are not confirmed."""
    meta = row._meta
    stem = f"admin:{meta.app_label}_{meta.model_name}"
    listing = reverse(f"{stem}_changelist")
    allowed = set()
    if client.post(reverse(f"{stem}_add"), {}).status_code == 200:
        allowed.add("add")
    changed = client.post(reverse(f"{stem}_change", args=[row.pk]), {"_save": "Save"})
    if changed.status_code == 200 or changed.headers.get("Location") == listing:
        allowed.add("change")
    if client.post(reverse(f"{stem}_delete", args=[row.pk]), {}).status_code == 200:
        allowed.add("delete")
    for name in {*MAY[meta.label], "delete_selected"} - READ_ONLY.keys():
        asked = client.post(listing, {"action": name, "_selected_action": [row.pk]})
        if asked.status_code == 200 and asked.context and row in asked.context.get("rows", ()):
            allowed.add(name)
    return allowed


def describe_rows(rows):
    """Return the number of rows of each model, and the values of the row that was tried."""
    return {
        label: (type(row).objects.count(), type(row).objects.filter(pk=row.pk).values().get())
        for label, row in rows.items()
    }


def test_every_model_and_action_of_the_admin_has_a_line():
    registered = {model._meta.label: model_admin for model, model_admin in admin.site._registry.items()}
    assert registered.keys() == MAY.keys()
    for label, model_admin in registered.items():
        actions = {action.name for action in getattr(model_admin, "row_actions", ())}
        assert MAY[label].keys() == READ_ONLY.keys() | actions, label


@pytest.mark.parametrize("person", PEOPLE)
def test_each_role_may_post_what_is_declared_and_nothing_else(rows, person):
    is_root = person == "superuser"
    user = factories.make_user(person, *([] if is_root else [person.title()]), superuser=is_root)
    client = Client()
    client.force_login(user)
    before = describe_rows(rows)
    allowed = {label: find_allowed(client, row) for label, row in rows.items()}
    declared = {label: {name for name, people in verbs.items() if person in people} for label, verbs in MAY.items()}
    assert allowed == declared
    # An empty form of a model without required fields is a change, where the role may change the row.
    after = describe_rows(rows) | {label: before[label] for label in before if "change" in declared[label]}
    assert after == before


def test_a_visitor_without_an_account_is_sent_to_the_login(rows):
    assert {label for label, row in rows.items() if find_allowed(Client(), row)} == set()
