"""`experiment set`: what may change while it runs, as on its page."""

import pytest

from runs_app.models import Experiment, LanguageModel

PRICED = ("model", "set", "sim", "--input-price", "1", "--output-price", "2", "--max-output-tokens", "50")


@pytest.fixture
def launched(manage, lab, design):
    for command in (("experiment", "create", design()), PRICED, ("experiment", "launch", "pilot", "--yes")):
        done = manage(*command)
        assert done.code == 0, done.err
    return Experiment.objects.get()


def test_budget_and_limit_on_failures_change_and_history_names_who(manage, launched, operator):
    manage("experiment", "set", "pilot", "--budget", "none")
    changed = manage(
        "experiment", "set", "pilot", "--budget", "2.5", "--stop-failure-rate", "0.2", "--user", operator.username
    )
    assert (changed.code, changed.out.strip()) == (0, "pilot is changed, from the next call on")
    launched.refresh_from_db()
    assert (launched.max_usd, launched.stop_failure_rate, launched.samples) == (2.5, 0.2, 1)
    said = {change.what: (change.from_value, change.to_value) for change in launched.history.filter(by=operator)}
    assert said == {"budget": ("none", "2.5"), "stop_failure_rate": ("0.05", "0.2")}


def test_what_cannot_be_ends_with_2_and_the_name_of_the_option(manage, launched):
    manage("experiment", "set", "pilot", "--budget", "none")
    LanguageModel.objects.update(output_price=None)
    refused = manage("experiment", "set", "pilot", "--budget", "5", "--stop-failure-rate", "2")
    assert refused.code == 2
    assert "budget: unknown price: model sim has no price" in refused.err
    assert "stop-failure-rate: " in refused.err
    launched.refresh_from_db()
    assert (launched.max_usd, launched.stop_failure_rate) == (None, 0.05)


def test_a_price_that_is_set_while_it_runs_is_set_aside_at_once(manage, launched):
    before = launched.runs.get().reserve_usd
    assert manage("model", "set", "sim", "--output-price", "4").code == 0
    assert launched.runs.get().reserve_usd > before > 0
