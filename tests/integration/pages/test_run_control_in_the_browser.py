"""Launch, pause, resume, cancel, retry, concurrency: each a POST, with its author and reason in the history."""

import pytest
from django.contrib.messages import get_messages

from runs_app.models import Experiment, Run, Trial
from tests import factories


def list_messages(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def post_verb(client, lab, verb, **data):
    return client.post(f"/experiments/{lab.experiment.slug}/control/{verb}/", data)


def test_pause_and_resume_have_author_and_reason(lab, as_, people):
    client = as_("owner")
    assert list_messages(post_verb(client, lab, "pause", reason="Lunch"))[-1] == "1 run paused."
    lab.run.refresh_from_db()
    assert lab.run.status == "paused"
    change = lab.run.history.first()
    assert (change.by, change.reason, change.from_value, change.to_value) == (
        people["owner"], "Lunch", "running", "paused",
    )  # fmt: skip
    post_verb(client, lab, "resume", reason="Back")
    lab.run.refresh_from_db()
    assert lab.run.status == "running"


def test_a_cancel_needs_a_reason(lab, as_):
    client = as_("owner")
    assert "Reason: This field is required." in list_messages(post_verb(client, lab, "cancel"))
    lab.run.refresh_from_db()
    assert lab.run.status == "running"
    post_verb(client, lab, "cancel", reason="Wrong prompt")
    lab.run.refresh_from_db()
    assert (lab.run.status, lab.run.n_pending) == ("cancelled", 0)


def test_an_action_without_effect_says_so(lab, as_):
    assert list_messages(post_verb(as_("owner"), lab, "resume"))[-1].startswith("Nothing changed")


def test_retry_of_one_class_leaves_the_others(lab, as_):
    nothing = list_messages(post_verb(as_("owner"), lab, "retry", only="timeout"))[-1]
    assert nothing.startswith("Nothing changed: there are no failed trials of class timeout.")
    assert (
        list_messages(post_verb(as_("owner"), lab, "retry", only="bad_request"))[-1]
        == "1 failed trial will be retried."
    )
    assert Trial.objects.get(pk=lab.failed.pk).status == "pending"


def test_an_unknown_verb_is_not_found(lab, as_):
    assert post_verb(as_("owner"), lab, "explode").status_code == 404


@pytest.mark.parametrize("role", ["viewer", "researcher"])
def test_readers_cannot_control_runs(lab, as_, role):
    Experiment.objects.update(sharing="group")
    assert as_(role).get(f"/experiments/{lab.experiment.slug}/progress/").status_code == 200
    assert post_verb(as_(role), lab, "pause").status_code == 404
    assert as_(role).post(f"/runs/{lab.run.pk}/control/concurrency/", {"max_concurrency": 3}).status_code == 404
    assert as_(role).get(f"/experiments/{lab.experiment.slug}/launch/").status_code == 404
    assert as_(role).post(f"/experiments/{lab.experiment.slug}/launch/").status_code == 404
    page = as_(role).get(f"/experiments/{lab.experiment.slug}/progress/").content.decode()
    assert "/control/" not in page
    lab.run.refresh_from_db()
    assert (lab.run.status, lab.run.max_concurrency) == ("running", 32)


def test_one_run_can_be_controlled_separately(lab, as_):
    other = factories.make_experiment("other", owner=lab.people["owner"], dataset=lab.experiment.dataset)
    (elsewhere,) = factories.make_runs(other)
    as_("owner").post(f"/runs/{lab.run.pk}/control/pause/", {})
    elsewhere.refresh_from_db()
    lab.run.refresh_from_db()
    assert (lab.run.status, elsewhere.status) == ("paused", "running")


@pytest.mark.parametrize(("entered", "expected"), [("5", 5), ("0", 32), ("many", 32), ("100001", 32)])
def test_concurrency_is_a_number_in_its_limits(lab, as_, entered, expected):
    as_("owner").post(f"/runs/{lab.run.pk}/control/concurrency/", {"max_concurrency": entered})
    lab.run.refresh_from_db()
    assert lab.run.max_concurrency == expected


@pytest.mark.parametrize(("entered", "expected"), [("5", 5), ("-9", -9), ("10", 0), ("", 0), ("urgent", 0)])
def test_a_priority_is_a_number_in_its_limits(lab, as_, entered, expected):
    post_verb(as_("owner"), lab, "priority", priority=entered)
    lab.experiment.refresh_from_db()
    assert lab.experiment.priority == expected


def test_a_priority_is_changed_during_a_run_with_author_and_reason(lab, as_, people):
    client, action = as_("owner"), f"/experiments/{lab.experiment.slug}/control/priority/"
    for page in (f"/experiments/{lab.experiment.slug}/progress/", f"/runs/{lab.run.pk}/"):
        assert action in client.get(page).content.decode()
    response = post_verb(client, lab, "priority", priority="3", reason="Due today", next=f"/runs/{lab.run.pk}/")
    assert (response.url, list_messages(response)[-1]) == (f"/runs/{lab.run.pk}/", "Priority 3 from the next claim on.")
    change = lab.experiment.history.get(aspect="priority")
    assert (change.by, change.reason, change.from_value, change.to_value) == (people["owner"], "Due today", "0", "3")
    assert list_messages(post_verb(client, lab, "priority", priority="3"))[-1].startswith("Nothing changed")


def test_readers_cannot_change_the_priority(lab, as_):
    Experiment.objects.update(sharing="group")
    assert post_verb(as_("researcher"), lab, "priority", priority="3").status_code == 404
    lab.experiment.refresh_from_db()
    assert lab.experiment.priority == 0


@pytest.mark.parametrize(
    ("given", "to"), [("/trials/", "/trials/"), ("https://elsewhere.example/", None), ("//x.y", None)]
)
def test_redirects_stay_on_the_site(lab, as_, given, to):
    response = post_verb(as_("owner"), lab, "pause", next=given)
    assert response.url == (to or f"/experiments/{lab.experiment.slug}/progress/")


def test_a_form_without_its_token_is_refused(lab, people):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(people["owner"])
    assert post_verb(strict, lab, "pause").status_code == 403


# --- launch


@pytest.fixture
def draft(people):
    return factories.make_experiment(
        "draft", owner=people["owner"], samples=2, max_usd=5, confirm_above_usd="0.0001",
        samplers=[factories.make_sampler("short", max_tokens=1000)],
    )  # fmt: skip


def test_the_launch_page_says_how_many_and_how_much(draft, as_):
    text = as_("owner").get("/experiments/draft/launch/").content.decode()
    assert "Trials to run" in text
    assert "I accept the maximum cost" in text
    assert not Run.objects.exists()


def test_a_launch_above_the_limit_needs_confirmation(draft, as_):
    response = as_("owner").post("/experiments/draft/launch/", {"wave": ""})
    assert response.context["form"].errors["confirmed"]
    assert not Run.objects.exists()


def test_a_launch_plans_every_trial_and_leads_to_the_progress(draft, as_, people):
    response = as_("owner").post("/experiments/draft/launch/", {"wave": "", "confirmed": "on"})
    assert response.url == "/experiments/draft/progress/"
    draft.refresh_from_db()
    run = draft.runs.get()
    assert (draft.status, run.n_trials, run.status) == ("active", 6, "running")
    assert draft.history.first().by == people["owner"]
    assert draft.manifests.count() == 1


def test_a_launch_after_a_cancel_says_what_to_do(draft, as_):
    launch = {"wave": "", "confirmed": "on"}
    as_("owner").post("/experiments/draft/launch/", launch)
    as_("owner").post("/experiments/draft/control/cancel/", {"reason": "Wrong prompt"})
    messages = list_messages(as_("owner").post("/experiments/draft/launch/", launch))
    assert "Already launched, nothing has changed: 0 new trials, 6 in all, in 1 run." in messages
    assert messages[-1].startswith("1 run is cancelled and stays so")


def test_a_wave_repeats_the_design(draft, as_):
    for wave in ("", "again"):
        as_("owner").post("/experiments/draft/launch/", {"wave": wave, "confirmed": "on"})
    assert sorted(draft.runs.values_list("wave__label", "n_pending")) == [("", 6), ("again", 6)]


def test_an_invalid_design_is_not_launched_and_the_problem_is_named(draft, as_):
    draft.prompts.set([factories.make_prompt("unread", status="draft")])
    response = as_("owner").post("/experiments/draft/launch/", {"wave": "", "confirmed": "on"})
    assert "a curator must approve it" in response.content.decode()
    assert not Run.objects.exists()


def test_a_pilot_is_offered_with_its_own_size_and_cost(draft, as_):
    draft.samples = 10
    draft.save()
    text = as_("owner").get("/experiments/draft/launch/").content.decode()
    assert '<a href="?pilot=20">Run a pilot of 20 trials first</a>' in text
    full_estimate = as_("owner").get("/experiments/draft/launch/").context["summary"].estimate
    response = as_("owner").get("/experiments/draft/launch/?pilot=2")
    estimate = response.context["summary"].estimate
    assert (estimate.to_do, estimate.ceiling_usd * 15) == (2, full_estimate.ceiling_usd)
    assert "Launch pilot" in response.content.decode()
    assert 'name="pilot" value="2"' in response.content.decode()


@pytest.mark.slow
def test_a_pilot_creates_its_trials_and_progress_links_to_the_rest(draft, as_):
    as_("owner").post("/experiments/draft/launch/", {"wave": "", "pilot": "2", "confirmed": "on"})
    run = draft.runs.get()
    assert (run.n_trials, run.status) == (2, "running")
    running = as_("owner").get("/experiments/draft/progress/").content.decode()
    assert "Launch the rest" not in running
    Run.objects.update(status="done", n_pending=0, n_done=2)
    text = as_("owner").get("/experiments/draft/progress/").content.decode()
    assert "2 of the design's 6 trials are planned" in text
    assert "Launch the rest" in text
    response = as_("owner").post("/experiments/draft/launch/", {"wave": "", "pilot": "", "confirmed": "on"})
    assert list_messages(response)[-1] == "Launched: 4 new trials, 6 in all, in 1 run."
    run.refresh_from_db()
    assert (run.n_done, run.n_pending, run.status) == (2, 4, "running")
    Run.objects.update(status="done", n_pending=0, n_done=6)
    assert "Launch the rest" not in as_("owner").get("/experiments/draft/progress/").content.decode()


@pytest.mark.parametrize("pilot", ["0", "-3", "many", "1e9"])
def test_a_pilot_is_a_number_of_trials(draft, as_, pilot):
    response = as_("owner").post("/experiments/draft/launch/", {"wave": "", "pilot": pilot, "confirmed": "on"})
    assert response.context["form"].errors["pilot"]
    assert as_("owner").get("/experiments/draft/launch/", {"pilot": pilot}).status_code == 200
    assert not Run.objects.exists()


def test_a_pilot_needs_confirmation_only_above_the_limit(draft, as_):
    draft.confirm_above_usd = "0.005"
    draft.save()
    assert as_("owner").post("/experiments/draft/launch/", {"wave": ""}).context["form"].errors["confirmed"]
    as_("owner").post("/experiments/draft/launch/", {"wave": "", "pilot": "1"})
    assert draft.runs.get().n_trials == 1


# --- delete one run


def test_a_run_that_has_ended_is_deleted_on_its_page_with_a_reason(lab, as_):
    owner, address = as_("owner"), f"/runs/{lab.run.pk}/control/delete/"
    assert address not in owner.get(f"/runs/{lab.run.pk}/").content.decode()  # The run has not ended.
    assert "pause or cancel it" in list_messages(owner.post(address, {"reason": "Wrong model"}))[-1]
    Run.objects.update(status="done")
    page = owner.get(f"/runs/{lab.run.pk}/").content.decode()
    assert address in page
    assert "This permanently deletes its" in page
    assert "Reason: This field is required." in list_messages(owner.post(address, {}))
    response = owner.post(address, {"reason": "Wrong model"})
    assert response.url == f"/experiments/{lab.experiment.slug}/progress/"
    assert not Run.objects.filter(pk=lab.run.pk).exists()
    ledger = owner.get(f"/experiments/{lab.experiment.slug}/ledger/").content.decode()
    assert f"Run {lab.run.pk} (" in ledger
    assert "which is part of the budget" in ledger


def test_readers_cannot_delete_a_run(lab, as_):
    Experiment.objects.update(sharing="group")
    Run.objects.update(status="done")
    assert as_("researcher").post(f"/runs/{lab.run.pk}/control/delete/", {"reason": "x"}).status_code == 404
    assert Run.objects.filter(pk=lab.run.pk).exists()
