"""A raw response that equals the answer is stored once, and readers get it whole."""

import json

import pytest
from django.db import connection

from grading_app.publish.export.file_formats import export_chunks
from runs_app import run_control
from runs_app.models import Trial
from tests import factories
from tests.factories.engine import build_reply, drain

PREAMBLE = "You are a patient teacher of arithmetic."


@pytest.mark.parametrize(
    ("answer", "raw", "stored"),
    [("four", "four", None), ("four", "<think>2 + 2</think>four", "<think>2 + 2</think>four"), (" \n", " \n", " \n")],
)
def test_a_raw_response_is_stored_only_if_it_differs_from_the_answer(transactional_db, client, answer, raw, stored):
    async def call(request):
        return build_reply(answer, raw_text=raw)

    experiment = factories.make_experiment(max_usd=None, on_empty="keep")
    run_control.launch(experiment, by="test")
    drain(call)
    trials = Trial.objects.filter(run__experiment=experiment)
    assert set(trials.values_list("raw_response", flat=True)) == {stored}
    assert {trial.raw_text for trial in trials} == {raw}
    rows = b"".join(export_chunks(experiment, "trials", "jsonl")).splitlines()
    assert {json.loads(row)["raw_response"] for row in rows} == {raw}
    client.force_login(experiment.owner)
    assert client.get(f"{trials[0].get_absolute_url()}text/response/").content.decode() == raw


def test_a_trial_without_an_answer_has_no_raw_response(db):
    (run,) = factories.make_runs(factories.make_experiment())
    failed = factories.plan_trials(run, answer=lambda *_: factories.build_failed_fields())[0]
    assert failed.raw_text is None


def test_what_every_request_repeats_is_stored_with_no_trial(transactional_db):
    async def call(request):
        assert PREAMBLE in request.messages[0]["content"]
        return build_reply("four")

    prompt = factories.make_prompt(
        messages=[{"role": "system", "content": PREAMBLE}, {"role": "user", "content": "{{input}}"}]
    )
    experiment = factories.make_experiment(prompts=[prompt], max_usd=None)
    run_control.launch(experiment, by="test")
    drain(call)
    with connection.cursor() as cursor:
        for table in ("runs_app_trial", "runs_app_attempt", "runs_app_cachedanswer", "runs_app_ledgerentry"):
            cursor.execute(
                f"SELECT count(*), count(*) FILTER (WHERE t::text LIKE %s) FROM {table} t", [f"%{PREAMBLE}%"]
            )
            rows, with_preamble = cursor.fetchone()
            assert (rows > 0, with_preamble) == (True, 0), table
        cursor.execute("SELECT count(*) FROM runs_app_condition c WHERE c.content::text LIKE %s", [f"%{PREAMBLE}%"])
        assert cursor.fetchone() == (1,)
