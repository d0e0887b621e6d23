import re

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.urls import reverse

from runs_app.models import Endpoint, Experiment, Run, Worker
from runs_app.planning import plan as plan_module
from tests.factories import make_endpoint
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_rehearsal_model,
)

admin.autodiscover()  # The addresses do it, but the parameters below are listed before.
QUEUE = [model for model in apps.get_app_config("django_q").get_models() if admin.site.is_registered(model)]


def build_address(row_or_model, page, *args):
    meta = row_or_model._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_{page}", args=args)


@pytest.fixture
def planned_experiment(researcher):
    experiment = make_draft_experiment(owner=researcher, dimensions=[make_draft_dimension()])
    plan_module.plan(experiment, by=researcher)
    return experiment


def test_the_queue_is_registered_in_the_admin():
    assert {model.__name__ for model in QUEUE} == {"Success", "Failure", "OrmQ"}, "schedules are not used"


@pytest.mark.parametrize("model", QUEUE, ids=lambda model: model.__name__)
def test_the_task_queue_is_hidden_even_from_users_with_all_permissions(as_user, operator, superuser, model):
    operator.user_permissions.set(Permission.objects.filter(content_type__app_label="django_q"))
    assert operator.has_perm(f"django_q.view_{model._meta.model_name}")
    web = as_user(operator)
    assert web.get(build_address(model, "changelist")).status_code == 403
    assert "django_q" not in web.get(reverse("admin:index")).content.decode()
    assert as_user(superuser).get(build_address(model, "changelist")).status_code == 200


def test_private_experiments_of_others_are_not_listed_and_not_found(as_user, planned_experiment, curator):
    web, run = as_user(curator), Run.objects.get()
    for row in (planned_experiment, run):
        listed = web.get(build_address(row, "changelist"))
        assert list(listed.context["cl"].queryset) == []
        assert web.get(build_address(row, "change", row.pk), follow=True).redirect_chain


def test_an_own_experiment_is_shown_with_its_history_and_cannot_be_edited(as_user, planned_experiment, researcher):
    planned_experiment.status = "active"
    Experiment.objects.filter(pk=planned_experiment.pk).transition(
        sources=["draft"], target="active", by=researcher, reason="off we go"
    )
    web = as_user(researcher)
    page = web.get(build_address(planned_experiment, "change", planned_experiment.pk)).content.decode()
    assert "off we go" in page
    assert "_save" not in page
    assert (
        web.post(build_address(planned_experiment, "change", planned_experiment.pk), {"title": "x"}).status_code == 403
    )
    assert web.get(build_address(Run, "change", Run.objects.get().pk)).status_code == 200


def test_workers_are_read_only_even_for_superusers(as_user, superuser):
    worker = Worker.objects.create(name="host:1:0", host="host", pid=1)
    web = as_user(superuser)
    assert web.get(build_address(worker, "change", worker.pk)).status_code == 200
    assert web.post(build_address(worker, "delete", worker.pk), {"post": "yes"}).status_code == 403


def test_a_researcher_sees_endpoints_and_cannot_change_them(as_user, researcher, operator):
    endpoint = make_endpoint("rehearsal")
    page = build_address(endpoint, "change", endpoint.pk)
    assert as_user(researcher).get(page).status_code == 200
    filled = as_user(operator).get(page).context["adminform"].form.initial
    fields = {name: value for name, value in filled.items() if value not in (None, False)} | {"max_concurrency": 3}
    assert as_user(researcher).post(page, fields).status_code == 403
    assert Endpoint.objects.get().max_concurrency == 16
    as_user(operator).post(page, fields)
    assert Endpoint.objects.get().max_concurrency == 3


def test_an_address_that_is_not_allowed_is_refused_for_an_operator_too(as_user, operator):
    response = as_user(operator).post(
        build_address(Endpoint, "add"),
        {"name": "evil", "provider": "openai", "base_url": "http://evil.example/v1", "max_concurrency": 3},
    )
    assert any(
        "not on the list of allowed hosts" in sentence for errors in response.context["errors"] for sentence in errors
    )
    assert not Endpoint.objects.exists()


@pytest.mark.slow
def test_no_page_of_the_admin_needs_an_inline_script_or_style(as_user, superuser, planned_experiment):
    """The site's policy forbids both: a page with one would fail silently."""
    rows = [
        planned_experiment,
        Run.objects.get(),
        make_endpoint("lab"),
        make_rehearsal_model("m"),
        make_question_prompt("p", status="draft"),
    ]
    rows += [make_draft_sampler("s"), make_draft_dimension("d"), Worker.objects.create(name="w", host="h", pid=1)]
    web = as_user(superuser)
    pages = [build_address(row, "changelist") for row in rows] + [build_address(row, "change", row.pk) for row in rows]
    pages += [reverse("admin:runs_app_prompt_add")]
    for url in pages:
        response = web.get(url)
        assert response.status_code == 200, url
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]
        inline = re.findall(
            r"<script(?![^>]*\b(?:src|type=\"application/json\"))[^>]*>|\sstyle=|\son[a-z]+=\"|<style",
            response.content.decode(),
        )
        assert inline == [], url


@pytest.mark.slow
def test_the_history_of_hidden_rows_is_not_listed(as_user, planned_experiment, curator, researcher, superuser):
    Experiment.objects.filter(pk=planned_experiment.pk).transition(
        sources=["draft", "active"], target="archived", by=researcher, reason="a secret reason"
    )
    listing = reverse("admin:lib_statuschange_changelist")
    assert "a secret reason" not in as_user(curator).get(listing).content.decode()
    for reader in (researcher, superuser):
        assert "a secret reason" in as_user(reader).get(listing).content.decode()
