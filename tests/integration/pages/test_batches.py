"""A batch on its page and its run's page: state, savings and cancellation."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs_app.models import Endpoint, Experiment, ProviderBatch, Run
from runs_app.planning.cost_estimate import estimate
from tests import factories


@pytest.fixture
def batch(lab):
    Run.objects.filter(pk=lab.run.pk).update(is_batched=True, status="running")
    return ProviderBatch.objects.create(
        run=lab.run,
        endpoint_id=lab.model.endpoint_id,
        status="submitted",
        provider_id="batch_<b>77",
        provider_status="in_progress",
        provider_counts={"completed": 4, "failed": 0},
        n_requests=12,
        spent_usd=Decimal("0.25"),
        discount=Decimal("0.5"),
    )


@pytest.fixture
def select_all_in_the_admin(lab):
    get_user_model().objects.update(is_staff=True)


def test_a_batch_shows_its_state_and_its_savings(lab, batch, as_):
    page = as_("owner").get(f"/batches/{batch.pk}/").content.decode()
    assert "batch_&lt;b&gt;77" in page
    assert "in_progress, 4 completed" in " ".join(page.split())
    assert page.count(">$0.25</") == 2
    assert batch.key.hex in page
    assert "Cancel batch" in page


def test_a_run_lists_its_batches(lab, batch, as_):
    page = as_("owner").get(f"/runs/{lab.run.pk}/").content.decode()
    assert f"/batches/{batch.pk}/" in page
    assert "Submitted" in page


def test_a_lost_submission_names_the_candidate_and_the_deadline(lab, batch, as_):
    expires = timezone.now() + timedelta(hours=20)
    ProviderBatch.objects.update(
        status="submitting",
        provider_id="",
        tries=3,
        search_until=timezone.now(),
        expires_at=expires,
        error="At the provider, msgbatch_7 may be this batch.",
    )
    client, until = as_("owner"), expires.strftime("%Y-%m-%d %H:%M")
    for address in (f"/batches/{batch.pk}/", f"/runs/{lab.run.pk}/"):
        page = client.get(address).content.decode()
        assert "msgbatch_7 may be this batch" in page
        assert until in page
    ProviderBatch.objects.update(provider_id="msgbatch_7")
    assert "looked for" not in client.get(f"/runs/{lab.run.pk}/").content.decode()


def test_a_paused_run_says_that_its_open_batches_continue(lab, batch, as_):
    client, address = as_("owner"), f"/runs/{lab.run.pk}/"
    assert "continue at the provider" not in client.get(address).content.decode()
    Run.objects.filter(pk=lab.run.pk).update(status="paused", n_running=12)
    assert "continue at the provider" in client.get(address).content.decode()


def test_cancelling_needs_a_reason_and_pauses_the_run(lab, batch, as_):
    client = as_("owner")
    client.post(f"/batches/{batch.pk}/cancel/")
    batch.refresh_from_db()
    assert batch.status == "submitted"
    page = client.post(f"/batches/{batch.pk}/cancel/", {"reason": "a wrong prompt"}, follow=True).content.decode()
    batch.refresh_from_db()
    assert (batch.status, Run.objects.get(pk=lab.run.pk).status) == ("cancelling", "paused")
    assert page.count("a wrong prompt") == 1
    assert [(change.by, change.reason) for change in batch.history] == [(lab.experiment.owner, "a wrong prompt")]
    assert (
        "Nothing changed" in client.post(f"/batches/{batch.pk}/cancel/", {"reason": "x"}, follow=True).content.decode()
    )


def test_a_reader_cannot_cancel_a_batch(lab, batch, as_):
    Experiment.objects.update(sharing="group")
    client = as_("researcher")
    assert "Cancel batch" not in client.get(f"/batches/{batch.pk}/").content.decode()
    assert client.post(f"/batches/{batch.pk}/cancel/", {"reason": "x"}).status_code == 404


def test_a_poll_gets_only_the_live_part_until_the_batch_ends(lab, batch, as_):
    client = as_("owner")
    part = client.get(f"/batches/{batch.pk}/", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in part
    assert "hx-trigger" in part
    ProviderBatch.objects.update(status="collected")
    assert "hx-trigger" not in client.get(f"/batches/{batch.pk}/", headers={"hx-request": "true"}).content.decode()


def test_an_estimate_uses_batch_prices_and_shows_the_savings(db):
    model = factories.make_model("dear", max_output_tokens=100)
    experiment = factories.make_experiment(models=[model], batch=True)
    one_by_one = estimate(experiment)
    assert "gets single calls" in " ".join(one_by_one.warnings)
    Endpoint.objects.update(batch_api="openai")
    batched = estimate(experiment)
    assert (one_by_one.batched, batched.batched, batched.warnings) == (0, 3, [])
    assert batched.ceiling_usd * 2 == one_by_one.ceiling_usd > 0
    assert batched.batches_save_usd == one_by_one.expected_usd - batched.expected_usd
    assert one_by_one.batches_save_usd == 0


def test_the_design_page_shows_which_calls_use_batches(lab, as_):
    Experiment.objects.update(batch=True)
    Endpoint.objects.update(batch_api="openai")
    page = as_("owner").get(f"/experiments/{lab.experiment.slug}/launch/").content.decode()
    assert "In batches" in page
    assert "saves about" in page


def test_the_workers_page_lists_open_batches_of_visible_experiments(lab, batch, as_):
    assert f"/batches/{batch.pk}/" in as_("owner").get("/workers/").content.decode()
    assert f"/batches/{batch.pk}/" not in as_("researcher").get("/workers/").content.decode()
    ProviderBatch.objects.update(status="collected")
    assert "Open batches" not in as_("owner").get("/workers/").content.decode()


def test_the_list_is_filtered_by_state_endpoint_experiment_and_run_in_the_url(lab, batch, as_):
    client, address = as_("owner"), f"/batches/{batch.pk}/"
    run, slug, endpoint = lab.run.pk, lab.experiment.slug, lab.model.endpoint.name
    for query in ("", "status=open", "status=submitted", f"run={run}", f"experiment={slug}", f"endpoint={endpoint}"):
        assert address in client.get(f"/batches/?{query}").content.decode(), query
    for query in ("status=failed", f"run={run + 1}", "experiment=another"):
        page = client.get(f"/batches/?{query}").content.decode()
        assert address not in page, query
        assert "Clear" in page
    assert address not in as_("researcher").get("/batches/").content.decode()


def test_a_longer_list_needs_no_more_queries(lab, batch, as_, select_all_in_the_admin):
    client, addresses = as_("owner"), ("/batches/", "/admin/runs_app/providerbatch/")
    counts = []
    for _ in range(2):
        for address in addresses:
            with CaptureQueriesContext(connection) as queries:
                assert client.get(address).status_code == 200
            counts.append(len(queries))
        ProviderBatch.objects.bulk_create(
            ProviderBatch(run=lab.run, endpoint_id=batch.endpoint_id, status="collected") for _ in range(20)
        )
    assert counts[:2] == counts[2:]


def test_the_admin_shows_a_batch_read_only(lab, batch, as_, select_all_in_the_admin):
    client, address = as_("owner"), f"/admin/runs_app/providerbatch/{batch.pk}/change/"
    page = client.get(address).content.decode()
    assert "batch_&lt;b&gt;77" in page
    assert f"/runs/{lab.run.pk}/" in page
    assert "_save" not in page
    assert client.post(address, {"status": "failed"}).status_code == 403
    assert f"/runs/{lab.run.pk}/" not in as_("researcher").get("/admin/runs_app/providerbatch/").content.decode()


def test_cancelling_in_the_admin_needs_a_reason_and_is_the_same_transition(lab, batch, as_, select_all_in_the_admin):
    address, form_data = (
        "/admin/runs_app/providerbatch/",
        {"action": "cancel", "_selected_action": [batch.pk], "index": 0},
    )
    Experiment.objects.update(sharing="group")
    as_("researcher").post(address, form_data | {"confirmed": "1", "reason": "not mine"})
    client = as_("owner")
    assert "Enter a reason" in client.post(address, form_data | {"confirmed": "1"}).content.decode()
    batch.refresh_from_db()
    assert batch.status == "submitted"
    client.post(address, form_data | {"confirmed": "1", "reason": "a wrong prompt"})
    batch.refresh_from_db()
    assert (batch.status, Run.objects.get(pk=lab.run.pk).status) == ("cancelling", "paused")
    assert [change.reason for change in batch.history] == ["a wrong prompt"]
    second_response = client.post(
        address, form_data | {"confirmed": "1", "reason": "again"}, follow=True
    ).content.decode()
    assert "was not cancelled" in second_response


def test_a_batched_run_has_no_concurrency_field(lab, batch, as_):
    page = as_("owner").get(f"/runs/{lab.run.pk}/").content.decode()
    assert "sent through the batch API" in page
    assert "max_concurrency" not in page
