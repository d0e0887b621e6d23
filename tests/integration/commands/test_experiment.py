import json
from pathlib import Path

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.db.models import F

from evalsite.lib.history import StatusChange
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.management import started_work
from runs_app.models import Attempt, Endpoint, Experiment, LanguageModel, Preflight, Prompt, Run, Trial
from tests.factories import make_user
from tests.integration.commands.conftest import run_command, write_design
from tests.shared_rows import shared_rows

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
PRICED = ("model", "set", "sim", "--price-source", "a list", "--input-price", "1", "--output-price", "2")


@shared_rows
def pilot(lab_of_file, tmp_path_factory):
    for command in (("experiment", "create", write_design(tmp_path_factory.mktemp("pilot"))), PRICED):
        output = run_command(*command)
        assert output.code == 0, output.err
    return Experiment.objects.get()


def end_runs(runs, status="done", **fields):
    """Finish the runs as the engine does."""
    moved = {f"n_{status}": F("n_pending"), "n_pending": 0}
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(**moved, **{"status": "done", **fields})


@pytest.mark.parametrize(("option", "seed"), [((), None), (("--shuffle",), 42), (("--shuffle", "7"), 7)])
def test_create_shuffles_the_order_of_execution_with_a_seed(manage, lab, operator, design, option, seed):
    output = manage("experiment", "create", design(), *option)
    assert output.code == 0, output.err
    assert Experiment.objects.get().shuffle == seed
    assert ("shuffle: 7" in manage("experiment", "show", "pilot").out) == (seed == 7)


def test_create_refuses_a_seed_out_of_range(manage, lab, operator, design):
    output = manage("experiment", "create", design(), "--shuffle", "-1")
    assert output.code != 0
    assert "--shuffle: the seed must be between 0 and 2,147,483,647" in output.err


def test_create_makes_a_draft_owned_by_the_only_superuser_with_approved_prompts(manage, lab, operator, design):
    output = manage("experiment", "create", design())
    experiment = Experiment.objects.get()
    assert output.code == 0
    assert (experiment.status, experiment.owner) == ("draft", operator)
    assert Prompt.objects.get().status == "approved"
    assert "2 trials, 2 to do" in output.out


def test_create_uses_the_named_owner(manage, lab, design):
    rita = make_user("rita", "Researcher")
    manage("experiment", "create", design(), "--user", "rita")
    assert Experiment.objects.get().owner == rita
    assert manage("experiment", "create", design("b"), "--user", "nobody").err == "user: there is no user nobody"


@pytest.mark.parametrize("command", [("create",), ("create", "--user", "rita")], ids=" ".join)
def test_create_on_a_site_without_users_says_how_to_create_one(manage, lab, design, command):
    get_user_model().objects.all().delete()
    verb, *owner = command
    result = manage("experiment", verb, design(), *owner)
    assert result.code == 2
    assert "no user yet; create the first with `manage.py createsuperuser`" in result.err
    assert not Experiment.objects.exists()


def test_create_without_an_owner_is_refused_if_the_owner_is_ambiguous(manage, lab, design):
    make_user("second", superuser=True)
    result = manage("experiment", "create", design())
    assert (result.code, Experiment.objects.count()) == (2, 0)
    assert result.err.startswith("user: name the owner")


def test_a_file_with_an_unknown_key_exits_with_2_and_names_the_key(manage, lab, design):
    result = manage("experiment", "create", design(extra="sampels: 3"))
    assert (result.code, result.err) == (2, "sampels: unknown key; did you mean samples?")


def test_a_missing_file_exits_with_2(manage, lab, tmp_path):
    assert manage("experiment", "create", tmp_path / "none.yaml").err.startswith("file: ")


def test_show_prints_a_file_that_create_accepts(manage, pilot, tmp_path):
    result = manage("experiment", "show", "pilot").out
    again = tmp_path / "again.yaml"
    again.write_text(result.replace("experiment: pilot", "experiment: again"))
    assert manage("experiment", "create", again).code == 0
    assert json.loads(manage("experiment", "show", "pilot", "--json").out) == yaml.safe_load(result)


def test_list_shows_state_and_trials(manage, pilot):
    assert "draft" in manage("experiment", "list").out
    manage("experiment", "launch", "pilot")
    (one,) = json.loads(manage("experiment", "list", "--json").out)
    assert (one["experiment"], one["state"], one["trials"], one["remaining"]) == ("pilot", "running", 2, 2)


def test_launch_plans_and_starts(manage, pilot):
    launched = manage("experiment", "launch", "pilot")
    assert launched.code == 0
    assert "pilot is launched: 2 new trials, 2 in all, in 1 run" in launched.out
    assert Run.objects.get().status == "running"
    assert Trial.objects.filter(status="pending").count() == 2


def test_a_launch_without_anything_new_says_so_and_writes_no_manifest(manage, pilot):
    manage("experiment", "launch", "pilot")
    again = manage("experiment", "launch", "pilot")
    assert again.code == 0
    assert "pilot was already launched, and nothing has changed: 0 new trials, 2 in all, in 1 run" in again.out
    assert pilot.manifests.count() == 1


@pytest.mark.slow
def test_a_launch_after_a_cancel_says_that_runs_stay_cancelled_and_how_to_call_again(manage, pilot):
    manage("experiment", "launch", "pilot")
    manage("experiment", "cancel", "pilot", "--yes", "--reason", "wrong prompt")
    again = manage("experiment", "launch", "pilot")
    assert (
        "1 run is cancelled and stays so, without new trials. To ask again, launch under a new wave label." in again.out
    )
    assert "2 new trials, 2 in all" in manage("experiment", "launch", "pilot", "--wave", "again").out


@pytest.mark.slow
def test_a_launch_of_paused_runs_says_how_to_resume_them(manage, pilot):
    manage("experiment", "launch", "pilot")
    manage("experiment", "pause", "pilot")
    assert "1 run is paused or stopped. Resume it to go on." in manage("experiment", "launch", "pilot").out


@pytest.mark.slow
def test_launching_a_wave_repeats_the_whole_design(manage, pilot):
    manage("experiment", "launch", "pilot")
    manage("experiment", "launch", "pilot", "--wave", "march")
    assert [str(wave) for wave in pilot.waves.all()] == ["first wave", "march"]
    assert Trial.objects.count() == 4


@pytest.mark.slow
def test_launch_requires_confirmation_above_the_limit(manage, pilot):
    Experiment.objects.update(confirm_above_usd="0.0001")
    result = manage("experiment", "launch", "pilot")
    assert (result.code, Run.objects.count()) == (3, 0)
    assert "Confirm with --yes" in result.err
    assert manage("experiment", "launch", "pilot", "--yes").code == 0


def test_an_unknown_cost_counts_as_above_the_limit(manage, pilot):
    LanguageModel.objects.update(input_price=None)
    Experiment.objects.update(confirm_above_usd=100)
    assert manage("experiment", "launch", "pilot").code == 3


def test_launch_over_budget_ends_with_4(manage, pilot):
    Experiment.objects.update(max_usd="0.0001")
    result = manage("experiment", "launch", "pilot")
    assert (result.code, Run.objects.count()) == (4, 0)
    warning, refusal = result.err.splitlines()
    assert "one call of sim may cost" in warning
    assert refusal.startswith("budget: ")


def test_launch_with_a_budget_and_an_unknown_price_is_refused(manage, pilot):
    LanguageModel.objects.update(output_price=None)
    Experiment.objects.update(max_usd=5)
    result = manage("experiment", "launch", "pilot")
    assert result.code == 2
    assert "unknown price: model sim has no price, and the experiment has a budget" in result.err


@pytest.mark.slow
def test_a_pilot_launches_its_trials_and_the_next_launch_the_rest(manage, pilot):
    launched = manage("experiment", "launch", "pilot", "--pilot", "1")
    assert (launched.code, Trial.objects.count()) == (0, 1)
    assert "2 trials, 1 to do" in launched.out
    assert "pilot is launched: 1 new trial, 1 in all, in 1 run" in launched.out
    assert pilot.manifests.get().launch["pilot"] == 1
    assert pilot.history.first().reason == "launched, a pilot of 1"
    assert "1 new trial, 2 in all, in 1 run" in manage("experiment", "launch", "pilot").out
    assert Trial.objects.count() == 2


def test_wait_waits_only_for_the_trials_of_a_pilot(manage, pilot, monkeypatch):
    monkeypatch.setattr(started_work, "sleep", lambda _: end_runs(Run.objects.all()))
    waited = manage("experiment", "launch", "pilot", "--pilot", "1", "--wait")
    assert waited.code == 0
    assert "1 done, 0 failed" in waited.out


def test_limits_apply_to_the_cost_of_the_pilot_alone(manage, pilot):
    Experiment.objects.update(confirm_above_usd="0.0003")  # Between the ceilings of one trial and of two.
    assert manage("experiment", "launch", "pilot").code == 3
    assert manage("experiment", "launch", "pilot", "--pilot", "1").code == 0


def test_a_pilot_of_zero_trials_is_refused(manage, pilot):
    result = manage("experiment", "launch", "pilot", "--pilot", "0")
    assert (result.code, result.err, Run.objects.count()) == (2, "pilot: enter at least 1 trial", 0)
    assert manage("experiment", "estimate", "pilot", "--pilot", "-1").code == 2
    assert json.loads(manage("experiment", "estimate", "pilot", "--pilot", "1", "--json").out)["to_do"] == 1


def test_waiting_exits_with_0_when_all_trials_are_done(manage, pilot, monkeypatch):
    monkeypatch.setattr(started_work, "sleep", lambda _: end_runs(Run.objects.all()))
    waited = manage("experiment", "launch", "pilot", "--wait")
    assert waited.code == 0
    assert "2 done, 0 failed" in waited.out


def test_waiting_ends_with_1_when_work_failed(manage, pilot, monkeypatch):
    monkeypatch.setattr(started_work, "sleep", lambda _: end_runs(Run.objects.all(), "failed"))
    assert manage("experiment", "launch", "pilot", "--wait").code == 1


def test_waiting_ends_with_4_when_the_budget_paused_the_runs(manage, pilot, monkeypatch):
    def run_out(_):
        Experiment.objects.update(max_usd="0.0001")
        Run.objects.update(reserve_usd="0.01")
        Run.objects.all().transition(
            sources=["running"],
            target="paused",
            by="budget",
            reason="The budget is reached",
            stop_reason="reached",
            paused_by_budget=True,
        )

    monkeypatch.setattr(started_work, "sleep", run_out)
    waited = manage("experiment", "launch", "pilot", "--wait")
    assert waited.code == 4
    assert "reached" in waited.err


def test_waiting_without_a_worker_says_how_to_start_one(manage, pilot, monkeypatch):
    seconds = iter(range(0, 10_000, 10))
    monkeypatch.setattr(started_work, "monotonic", lambda: next(seconds))
    looks = iter([0, 0, 0, 1])
    monkeypatch.setattr(started_work, "sleep", lambda _: next(looks) and end_runs(Run.objects.all()))
    assert "No worker is running" in manage("experiment", "launch", "pilot", "--wait").err


def test_pause_resume_and_cancel_keep_the_reason_and_the_author(manage, pilot, operator):
    manage("experiment", "launch", "pilot")
    assert manage("experiment", "pause", "pilot", "--reason", "lunch", "--user", "root").out == "1 run paused\n"
    assert manage("experiment", "resume", "pilot").out == "1 run resumed\n"
    assert manage("experiment", "cancel", "pilot", "--reason", "wrong prompt").code == 3
    assert manage("experiment", "cancel", "pilot", "--reason", "wrong prompt", "--yes").code == 0
    run = Run.objects.get()
    assert (run.status, run.n_cancelled) == ("cancelled", 2)
    reasons = {change.to_value: (change.reason, change.by) for change in StatusChange.objects.for_row(run)}
    assert reasons["paused"] == ("lunch", operator)
    assert reasons["cancelled"] == ("wrong prompt", None)


def test_retry_gives_failed_trials_new_attempts(manage, pilot):
    manage("experiment", "launch", "pilot")
    Trial.objects.update(status="failed", attempts=3, error_class="timeout")
    end_runs(Run.objects.all(), "failed")
    assert manage("experiment", "retry", "pilot", "--error-class", "server_error").out.startswith("0 failed")
    assert manage("experiment", "retry", "pilot").out == "2 failed trials will be retried\n"
    assert Run.objects.get().status == "running"


def test_duplicate_is_a_draft_under_the_new_name(manage, pilot):
    assert manage("experiment", "duplicate", "pilot", "second").code == 0
    assert Experiment.objects.get(slug="second").status == "draft"
    assert manage("experiment", "duplicate", "pilot", "second").code == 2


@pytest.mark.slow
def test_archive_is_refused_while_a_run_is_live(manage, pilot):
    manage("experiment", "launch", "pilot")
    assert manage("experiment", "archive", "pilot", "--reason", "over").code == 2
    manage("experiment", "pause", "pilot")
    assert manage("experiment", "archive", "pilot", "--reason", "over").code == 0
    assert Experiment.objects.get().status == "archived"
    assert manage("experiment", "launch", "pilot").code == 2


@pytest.mark.slow
def test_delete_removes_all_rows_and_keeps_the_cost_in_the_history(manage, pilot):
    manage("experiment", "launch", "pilot")
    trial = Trial.objects.first()
    Attempt.objects.create(
        trial=trial, run_id=trial.run_id, token="0" * 32, outcome="ok", finished_at="2026-01-01T00:00Z"
    )
    Experiment.objects.update(spent_usd="1.25")
    assert manage("experiment", "delete", "pilot", "--reason", "a try", "--yes").code == 2
    manage("experiment", "pause", "pilot")
    assert manage("experiment", "delete", "pilot", "--reason", "a try").code == 3
    assert manage("experiment", "delete", "pilot", "--reason", "a try", "--yes").code == 0
    assert not any(kind.objects.exists() for kind in (Experiment, Run, Trial, Attempt))
    change = StatusChange.objects.get(aspect="experiment")
    assert change.to_value.startswith("deleted; 1.25")
    assert change.reason == "a try"


@pytest.mark.parametrize("verb", ["show", "estimate", "launch", "pause", "resume", "retry", "preflight"])
def test_an_unknown_experiment_ends_with_2(manage, verb):
    result = manage("experiment", verb, "nothing")
    assert (result.code, result.err) == (2, "name: there is no experiment nothing; see `experiment list`")


def test_estimate_as_json_names_its_sources(manage, pilot):
    estimate = json.loads(manage("experiment", "estimate", "pilot", "--json").out)
    assert (estimate["trials"], estimate["to_do"], estimate["basis"], estimate["coverage"]) == (
        2,
        2,
        {"ceiling": 2},
        0.0,
    )
    assert estimate["ceiling_usd"] == estimate["expected_usd"]
    (price,) = estimate["prices"]
    assert (price["model"], price["counted"]) == ("sim", "estimated: 1 token per 3 bytes")
    assert price["as_of"] is not None
    assert f"tokens: {price['counted']}" in manage("experiment", "estimate", "pilot").out


def test_preflight_calls_each_model_of_the_experiment_and_exits_with_1_if_one_fails(manage, pilot, monkeypatch):
    requests = []

    async def call(request):
        requests.append(request.model)
        raise CallFailure(ErrorClass.UNAUTHORIZED, "no such key")

    monkeypatch.setattr(gateway, "call", call)
    monkeypatch.setattr(gateway, "warm_up", lambda: None)
    checked = manage("experiment", "preflight", "pilot")
    assert (checked.code, requests) == (1, ["sim"])
    assert "dead" in checked.out
    assert "no such key" in checked.out
    preflight = Preflight.objects.get()
    assert (preflight.status, preflight.experiment, preflight.actor[:12]) == ("dead", pilot, "command line")
    Endpoint.objects.update(is_active=False)
    checked = manage("experiment", "preflight", "pilot")
    assert "unverified  the endpoint rehearsal is inactive" in checked.out
    assert (checked.code, len(requests)) == (1, 1)


def test_a_manifest_is_listed_and_shown_and_creates_the_same_experiment_again(manage, pilot, tmp_path):
    manage("experiment", "launch", "pilot", "--pilot", "1", "--user", "root")
    listed = manage("experiment", "manifests", "pilot").out
    assert listed.endswith("a pilot of 1, by root\n")
    result = manage("experiment", "manifests", "pilot", listed.split()[0])
    path = tmp_path / "manifest.json"
    path.write_text(result.out)
    assert manage("experiment", "create", path).code == 2
    assert manage("experiment", "create", path, "--name", "again").code == 0
    specs = [json.loads(manage("experiment", "show", name, "--json").out) for name in ("pilot", "again")]
    assert specs[0] | {"experiment": "again"} == specs[1]
    assert manage("experiment", "manifests", "pilot", "0").code == 2


def test_a_priority_is_changed_with_its_reason_and_one_out_of_bounds_is_refused(manage, pilot):
    outcome = manage("experiment", "priority", "pilot", "-3", "--reason", "can wait")
    pilot.refresh_from_db()
    assert (outcome.code, pilot.priority) == (0, -3)
    change = pilot.history.get(aspect="priority")
    assert (change.from_value, change.to_value, change.reason) == ("0", "-3", "can wait")
    assert "already" in manage("experiment", "priority", "pilot", "-3").out
    result = manage("experiment", "priority", "pilot", 10)
    assert result.code == 2
    assert result.err.startswith("n: ")


@pytest.mark.slow
def test_dev_launches_the_first_items_and_full_the_rest_by_command(manage, lab, design):
    manage("experiment", "create", design(extra="budget: {policy: dev, dev_items: 1}"))
    manage(*PRICED)
    assert "dev policy: the first 1 of 2 items" in manage("experiment", "estimate", "pilot").out
    assert "1 new trial, " in manage("experiment", "launch", "pilot").out
    assert manage("experiment", "set", "pilot", "--dev-items", "2", "--dev-samples", "1").code == 0
    assert "1 new trial, " in manage("experiment", "launch", "pilot").out
    manage("experiment", "set", "pilot", "--samples", "2", "--dev-samples", "none")
    assert "2 new trials, 4 in all" in manage("experiment", "launch", "pilot", "--policy", "full").out
    changed = manage("experiment", "set", "pilot", "--policy", "full", "--user", "root")
    assert changed.code == 0, changed.err
    change = Experiment.objects.get().history.get(aspect="launch policy")
    assert (change.from_value, change.to_value, str(change.by)) == ("dev", "full", "root")


def test_an_unknown_policy_in_a_file_names_its_key(manage, lab, design):
    result = manage("experiment", "create", design(extra="budget: {policy: half}"))
    assert (result.code, result.err) == (2, "budget.policy: input should be 'dev' or 'full'")
