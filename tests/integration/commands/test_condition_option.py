"""`--condition` limits a command to the runs of the named conditions."""

import pytest

from runs_app.models import Condition, Experiment, Manifest, Run, Trial
from tests.integration.commands.conftest import create_pilot, run_command
from tests.shared_rows import shared_rows

TWO = "[{name: greedy, temperature: 0, max_tokens: 100}, {name: warm, temperature: 1, max_tokens: 100}]"
GREEDY, WARM = "sim_plain_greedy", "sim_plain_warm"


@shared_rows
def draft(lab_of_file, tmp_path_factory):
    return create_pilot(tmp_path_factory.mktemp("pilot"), samplers=TWO)


@shared_rows
def launched_experiment(draft_of_file):
    assert run_command("experiment", "launch", "pilot", "--yes").code == 0
    return Experiment.objects.get()


def read_statuses():
    rows = Run.objects.order_by("pk").values_list("condition__condition_id", "status")
    return {condition.partition("--")[0]: status for condition, status in rows}


@pytest.mark.slow
def test_a_launch_plans_and_starts_the_conditions_it_names_and_later_the_rest(manage, draft):
    estimated = manage("experiment", "estimate", "pilot", "--condition", GREEDY)
    assert "2 trials, 2 to do" in estimated.out
    result = manage("experiment", "launch", "pilot", "--condition", GREEDY)
    assert result.code == 0, result.err
    assert read_statuses() == {GREEDY: "running"}
    assert Manifest.objects.get().summary.startswith("all trials of 1 condition,")
    assert manage("experiment", "launch", "pilot").code == 0
    assert read_statuses() == {GREEDY: "running", WARM: "running"}
    assert Trial.objects.count() == 4


@pytest.mark.slow
def test_a_launch_of_one_condition_leaves_a_planned_one_alone(manage, launched_experiment):
    Run.objects.filter(condition__condition_id__startswith=WARM).update(status="planned")
    manage("experiment", "launch", "pilot", "--condition", GREEDY)
    assert read_statuses()[WARM] == "planned"


@pytest.mark.slow
def test_a_condition_whose_model_was_renamed_is_launched_by_the_id_it_has(manage, launched_experiment):
    launched_experiment.language_models.update(name="renamed")
    (condition_id,) = Condition.objects.filter(condition_id__startswith=WARM).values_list("condition_id", flat=True)
    result = manage("experiment", "launch", "pilot", "--condition", condition_id)
    assert result.code == 0, result.err
    assert Condition.objects.count() == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (("pause",), "running", "paused"),
        (("resume",), "paused", "running"),
        (("cancel", "--yes", "--reason", "Enough"), "running", "cancelled"),
    ],
)
def test_run_control_affects_only_the_runs_of_the_condition(manage, launched_experiment, words, before, after):
    Run.objects.update(status=before)
    verb, *more = words
    result = manage("experiment", verb, "pilot", "--condition", WARM, *more)
    assert result.code == 0, result.err
    assert read_statuses() == {GREEDY: before, WARM: after}


def test_a_retry_affects_only_failed_trials_of_the_condition(manage, launched_experiment):
    Trial.objects.update(status="failed", error_class="timeout")
    Run.objects.update(status="done", n_pending=0, n_failed=2)
    result = manage("experiment", "retry", "pilot", "--condition", GREEDY)
    assert "2 failed trials will be retried" in result.out
    assert read_statuses() == {GREEDY: "running", WARM: "done"}


def test_several_conditions_add_up(manage, launched_experiment):
    manage("experiment", "pause", "pilot", "--condition", WARM, "--condition", GREEDY)
    assert set(read_statuses().values()) == {"paused"}


@pytest.mark.parametrize("verb", ["launch", "estimate", "pause", "resume", "cancel", "retry"])
@pytest.mark.parametrize(
    ("given_id", "message"), [("sim_none", "there is no condition sim_none"), ("sim_plain", "matches several")]
)
def test_an_unknown_or_ambiguous_id_exits_with_2_and_lists_valid_ids(
    manage, launched_experiment, verb, given_id, message
):
    more = ("--reason", "x", "--yes") if verb == "cancel" else ()
    result = manage("experiment", verb, "pilot", "--condition", given_id, *more)
    assert result.code == 2
    assert message in result.err
    for condition_id in Condition.objects.values_list("condition_id", flat=True):
        assert condition_id in result.err
    assert set(read_statuses().values()) == {"running"}
