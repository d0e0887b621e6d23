"""`experiment set` changes settings of a running experiment, as its page does."""

import pytest

from runs_app.models import LanguageModel


@pytest.mark.slow
def test_budget_and_failure_limit_change_with_their_author_in_the_history(manage, launched_experiment, operator):
    manage("experiment", "set", "pilot", "--budget", "none")
    changed = manage(
        "experiment", "set", "pilot", "--budget", "2.5", "--stop-failure-rate", "0.2", "--user", operator.username
    )
    assert (changed.code, changed.out.strip()) == (0, "pilot is updated; the changes apply from the next call")
    launched_experiment.refresh_from_db()
    assert (launched_experiment.max_usd, launched_experiment.stop_failure_rate, launched_experiment.samples) == (
        2.5,
        0.2,
        1,
    )
    changes = {
        change.aspect: (change.from_value, change.to_value)
        for change in launched_experiment.history.filter(by=operator)
    }
    assert changes == {"budget": ("none", "2.5"), "failure rate that stops a run": ("0.05", "0.2")}


def test_an_invalid_value_exits_with_2_and_names_the_option(manage, launched_experiment):
    manage("experiment", "set", "pilot", "--budget", "none")
    LanguageModel.objects.update(output_price=None)
    result = manage("experiment", "set", "pilot", "--budget", "5", "--stop-failure-rate", "2")
    assert result.code == 2
    assert "budget: unknown price: model sim has no price" in result.err
    assert "stop-failure-rate: " in result.err
    launched_experiment.refresh_from_db()
    assert (launched_experiment.max_usd, launched_experiment.stop_failure_rate) == (None, 0.05)


def test_a_price_set_during_a_run_changes_its_reservations_at_once(manage, launched_experiment):
    before = launched_experiment.runs.get().reserve_usd
    assert manage("model", "set", "sim", "--output-price", "4").code == 0
    assert launched_experiment.runs.get().reserve_usd > before > 0


@pytest.mark.slow
def test_samples_time_out_attempts_and_backoff_change_with_author_and_reason(manage, launched_experiment, operator):
    changed = manage(
        "experiment", "set", "pilot", "--samples", "3", "--timeout", "12.5", "--attempts", "5", "--backoff", "2",
        "--max-backoff", "90", "--on-empty", "rerun", "--on-unreadable", "rerun",
        "--user", operator.username, "--reason", "A slow provider",
    )  # fmt: skip
    assert changed.code == 0, changed.err
    assert "`experiment launch pilot` adds the missing trials of 3 samples" in changed.out
    launched_experiment.refresh_from_db()
    assert (launched_experiment.samples, launched_experiment.request_timeout_s, launched_experiment.max_attempts) == (
        3,
        12.5,
        5,
    )
    assert (launched_experiment.backoff_s, launched_experiment.max_backoff_s) == (2, 90)
    assert (launched_experiment.on_empty, launched_experiment.on_unreadable) == ("rerun", "rerun")
    history = launched_experiment.history.filter(by=operator, reason="A slow provider")
    assert {change.aspect: (change.from_value, change.to_value) for change in history} == {
        "samples": ("1", "3"),
        "time-out": ("60.0", "12.5"),
        "attempts": ("3", "5"),
        "first retry wait": ("1.0", "2.0"),
        "longest retry wait": ("60.0", "90.0"),
        "empty answers": ("keep", "rerun"),
        "unreadable answers": ("keep", "rerun"),
    }
    assert "4 new trials, 6 in all, in 1 run" in manage("experiment", "launch", "pilot").out


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--samples", "0"), "samples: "),
        (("--timeout", "0"), "timeout: Must be between 0.1 and 3,600 seconds."),
        (("--attempts", "21"), "attempts: Must be between 1 and 20."),
        (("--backoff", "99"), "max-backoff: The longest wait must not be shorter than the first one."),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_option_name(manage, launched_experiment, words, changes):
    result = manage("experiment", "set", "pilot", *words)
    assert result.code == 2
    assert changes in result.err
