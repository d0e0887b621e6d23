"""Trials of a misbehaving provider end with a recorded outcome, and trials of other providers are answered."""

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, Trial
from tests import factories
from tests.system.faults.misbehaving_provider import (
    BEHAVIOURS,
    DRIPPING,
    MB,
    REPLIES,
    SILENT,
    serve_misbehaving_provider,
)
from tests.system.processes.workers import drain_process

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

ANSWERED = {
    "fine": "fine",
    "invalid utf-8": "f\ufffd\ufffd\ufffdne",
    "nul bytes": "a\ufffdb",
    "half a character": "a\ufffdb",
    "10 MB of text": "x" * (10 * MB),
    "mad numbers": "mad",
    "long names": "long",
}
TRANSIENT = {
    "hangs up": "connection",
    "half a reply": "connection",
    "not http": "connection",
    "web page": "malformed_reply",
    "empty body": "malformed_reply",
    "no json": "malformed_reply",
    "other json": "malformed_reply",
    "numbers for words": "malformed_reply",
    "deep json": "malformed_reply",
    "raw nul bytes": "malformed_reply",
    "10 MB of rubbish": "malformed_reply",
    "20 MB of text": "malformed_reply",
    "never answers": "timeout",
    "half open": "timeout",
    "drips": "timeout",
}
PERMANENT = {"redirect": "not_allowed", "key in error": "bad_request"}


def make_experiment_at(url, dataset, **fields):
    endpoint = factories.make_endpoint("odd", base_url=url, max_concurrency=64, is_free=True, adaptive=False)
    return factories.make_experiment(
        dataset.slug,
        dataset=dataset,
        models=[factories.make_model("odd", endpoint=endpoint)],
        **{"max_usd": None, "request_timeout_s": 60, "stop_failure_rate": 1, "max_attempts": 2, **fields},
    )


def make_run(experiment):
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


def test_every_kind_of_reply_is_recorded_and_affects_no_other_trial():
    endless = [*SILENT, DRIPPING]
    with serve_misbehaving_provider() as provider:
        for name, behaviours, timeout_s in (("odd", REPLIES, 60), ("endless", endless, 3)):
            items = [{"key": f"q{number}", "input": words} for number, words in enumerate(behaviours)]
            make_run(make_experiment_at(provider.url, factories.make_dataset(name, items), request_timeout_s=timeout_s))
        with drain_process() as worker:
            assert worker.wait(timeout=300) == 0
    trials = Trial.objects.all()
    error_classes = dict(trials.values_list("item__input", "error_class"))
    done = dict(trials.filter(status="done").values_list("item__input", "answer"))
    assert done == ANSWERED
    assert {name: kind for name, kind in error_classes.items() if kind} == TRANSIENT | PERMANENT
    assert set(trials.filter(item__input__in=TRANSIENT).values_list("status", "attempts")) == {("failed", 2)}
    assert set(trials.filter(item__input__in=PERMANENT).values_list("status", "attempts")) == {("failed", 1)}
    assert provider.requests == {name: 2 if name in TRANSIENT else 1 for name in BEHAVIOURS}
    assert Attempt.objects.count() == provider.requests.total()
    assert not Trial.objects.filter(error__contains="sk-abc").exists()
    assert find_differences() == []
