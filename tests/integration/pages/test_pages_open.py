"""Every page opens without queries in its template, and with a constant number of queries."""

from contextlib import contextmanager

import pytest
from django.db import connection
from django.template.backends.django import Template
from django.urls import reverse

from tests import factories

PAGES = [
    "home", "experiment_list", "experiment_new", "experiment_from_file", "trial_list", "endpoint_list",
    "worker_list",
]  # fmt: skip


@contextmanager
def forbid_queries_in_templates(monkeypatch):
    """Raise an error if a query starts while a template renders."""
    original = Template.render

    def refuse(execute, sql, params, many, context):
        raise AssertionError(f"a query ran while a template was rendered: {sql[:200]}")

    def render(self, context=None, request=None):
        with connection.execute_wrapper(refuse):
            return original(self, context, request)

    with monkeypatch.context() as patch:
        patch.setattr(Template, "render", render)
        yield


def build_addresses(lab):
    slug = [lab.experiment.slug]
    batch = lab.run.batches.create(endpoint_id=lab.model.endpoint_id, status="submitted")
    type(lab.run).objects.filter(pk=lab.run.pk).update(is_batched=True)
    return {
        **{name: reverse(name) for name in PAGES},
        "experiment_detail": reverse("experiment_detail", args=slug),
        "experiment_edit": reverse("experiment_edit", args=slug),
        "experiment_preview": reverse("experiment_preview", args=slug),
        "experiment_progress": reverse("experiment_progress", args=slug),
        "experiment_launch": reverse("experiment_launch", args=slug),
        "run_detail": reverse("run_detail", args=[lab.run.pk]),
        "batch_detail": reverse("batch_detail", args=[batch.pk]),
        "worker_list with a batch": reverse("worker_list"),
        "trial_detail": reverse("trial_detail", args=[lab.trial.pk]),
        "failed trial": reverse("trial_detail", args=[lab.failed.pk]),
        "endpoint_new": reverse("endpoint_new"),
        "endpoint_edit": reverse("endpoint_edit", args=[lab.model.endpoint_id]),
        "model_new": reverse("model_new"),
        "model_edit": reverse("model_edit", args=[lab.model.pk]),
        "model_status": reverse("model_status", args=[lab.model.pk]),
    }


@pytest.mark.slow
def test_every_page_opens_for_an_operator_and_no_template_queries(lab, as_, monkeypatch):
    client = as_("operator")
    with forbid_queries_in_templates(monkeypatch):
        for name, address in build_addresses(lab).items():
            response = client.get(address)
            assert response.status_code == 200, name
            assert b"</html>" in response.content or name in ("experiment_preview", "model_status"), name


@pytest.mark.slow
def test_a_draft_opens_for_its_owner(lab, as_, monkeypatch):
    draft = factories.make_experiment("draft", owner=lab.people["owner"], dataset=lab.experiment.dataset)
    with forbid_queries_in_templates(monkeypatch):
        for name in ("experiment_detail", "experiment_edit", "experiment_progress", "experiment_launch"):
            response = as_("owner").get(reverse(name, args=[draft.slug]))
            assert response.status_code == 200, name


@pytest.mark.parametrize("role", ["viewer", "researcher", "operator"])
def test_every_list_opens_on_an_empty_site(as_, role):
    for name in ("home", "experiment_list", "trial_list"):
        response = as_(role).get(reverse(name))
        assert response.status_code == 200, name
        assert 'class="empty"' in response.content.decode() or name == "home"
