"""Preflights before a launch: a worker calls each model once, and the launch page shows the result."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.core.management import call_command

from runs_app.models import Endpoint, LanguageModel, Preflight
from tests import factories
from tests.factories.tampering import disable_triggers

LAUNCH, PREFLIGHT = "/experiments/draft/launch/", "/experiments/draft/preflight/"


@pytest.fixture
def draft(people):
    models = [factories.make_model(name) for name in ("large", "small")]
    factories.make_model("elsewhere")
    return factories.make_experiment("draft", owner=people["owner"], models=models)


def test_only_the_models_of_the_experiment_are_checked(draft, as_, monkeypatch, django_capture_on_commit_callbacks):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *call: tasks.append(call))
    with django_capture_on_commit_callbacks(execute=True):
        response = as_("owner").post(PREFLIGHT, {"next": f"{LAUNCH}?pilot=5"})
    assert response.url == f"{LAUNCH}?pilot=5"
    rows = Preflight.objects.order_by("pk")
    assert tasks == [("runs_app.tasks.make_preflight", row.pk) for row in rows]
    assert {(row.model.name, row.status, row.by, row.experiment) for row in rows} == {
        (name, "waiting", draft.owner, draft) for name in ("large", "small")
    }
    assert as_("owner").get(LAUNCH).content.decode().count('hx-trigger="every 300ms"') == 2


def test_each_model_shows_result_reason_time_author_and_cost_of_its_last_preflight(draft, as_):
    large = LanguageModel.objects.get(name="large")
    factories.make_preflight(large, "unverified", error="an older one")
    last_preflight = factories.make_preflight(
        large, "dead", error_class="unauthorized", error="no key", actor="a colleague", cost_usd=Decimal("0.00012")
    )
    with disable_triggers():
        Preflight.objects.filter(pk=last_preflight.pk).update(asked_at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    page = as_("owner").get(LAUNCH).content.decode()
    for text in ("unauthorized: no key", "2026-03-01T12:00:00", "a colleague", "$0.00012"):
        assert text in page
    assert "an older one" not in page
    assert page.count("Not checked yet") == 1
    assert "Test all models" in page
    page = as_("operator").get(f"/endpoints/models/{large.pk}/edit/").content.decode()
    for text in ("an older one", "unauthorized: no key", "a colleague", "$0.00012"):
        assert text in page


def test_preflight_costs_are_in_the_ledgers_of_experiment_and_lab_and_in_the_export(draft, as_, tmp_path):
    for model, paid in zip(draft.language_models.order_by("name"), (Decimal("0.00012"), None), strict=True):
        factories.make_preflight(model, experiment=draft, cost_usd=paid, list_usd=paid)
    factories.make_preflight(LanguageModel.objects.get(name="elsewhere"), cost_usd=Decimal("0.5"))
    page = as_("owner").get("/experiments/draft/ledger/?by=stage&stage=preflight")
    sums = page.context["sums"]
    assert (sums.calls, sums.paid_usd, sums.unpriced) == (2, Decimal("0.00012"), 1)
    assert [line.label for line in page.context["lines"]] == ["Preflight"]
    assert not as_("owner").get("/experiments/draft/ledger/?stage=generate").context["lines"]
    out = tmp_path / "ledger.jsonl"
    call_command("export", "draft", table="ledger", format="jsonl", out=str(out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["stage"], row["model"], row["attempts"]) for row in rows} == {
        ("preflight", "large", 1), ("preflight", "small", 1),
    }  # fmt: skip
    lab = {by: as_("operator").get(f"/ledger/?by={by}") for by in ("experiment", "run", "model", "day")}
    assert {page.context["sums"].paid_usd for page in lab.values()} == {Decimal("0.50012")}
    assert "No experiment" in lab["experiment"].content.decode()
    assert "Preflights" in lab["run"].content.decode()
    assert as_("operator").get("/ledger/?model=elsewhere").context["sums"].calls == 1
    assert as_("operator").get("/ledger/?experiment=draft").context["sums"].calls == 2


def test_readers_cannot_start_preflights(draft, as_):
    draft.sharing = "group"
    draft.save()
    assert as_("researcher").post(PREFLIGHT).status_code == 404
    assert not Preflight.objects.exists()


CHANGES = {
    "base_url": lambda model: Endpoint.objects.update(base_url="http://127.0.0.1:10/v1"),
    "key_env": lambda model: Endpoint.objects.update(key_env="EVALSITE_KEY_OTHER"),
    "model": lambda model: LanguageModel.objects.filter(pk=model.pk).update(model="vendor/other"),
    "endpoint": lambda model: LanguageModel.objects.filter(pk=model.pk).update(
        endpoint=factories.make_endpoint("another")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_a_preflight_older_than_its_endpoints_change_is_marked_until_repeated(draft, as_, what):
    large = LanguageModel.objects.get(name="large")
    factories.make_preflight(large)
    addresses = (LAUNCH, "/endpoints/", f"/endpoints/models/{large.pk}/status/")
    Endpoint.objects.update(max_concurrency=3)
    for address in addresses:
        assert "Checked before the endpoint changed" not in as_("owner").get(address).content.decode()
    CHANGES[what](large)
    for address in addresses:
        assert as_("owner").get(address).content.decode().count("Checked before the endpoint changed on") == 1
    page = as_("operator").get(f"/endpoints/models/{large.pk}/edit/").content.decode()
    assert "before the endpoint changed" in page
    factories.make_preflight(large)
    assert "Checked before the endpoint changed" not in as_("owner").get(LAUNCH).content.decode()
