"""What the operations of the API return and change, and how they refuse."""

import json
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from grading_app.models import BlindReading, CachedAggregate
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results import cached_aggregates
from grading_app.results.status_report import OLDER_SCORES
from grading_app.tasks import compute_aggregates
from runs_app.models import Endpoint, Experiment, Run, Trial
from tests import factories
from tests.factories.gradings import make_gradings
from tests.factories.tampering import disable_triggers
from tests.factories.tokens import make_api_client

pytestmark = pytest.mark.django_db

ROOT = "/api/v1"
PILOT = f"{ROOT}/experiments/pilot"


@pytest.fixture
def api(team):
    return make_api_client(team.owner)


def post(client, address, body=None, **headers):
    return client.post(address, json.dumps(body or {}), content_type="application/json", headers=headers)


def read_all(client, address, limit, **query):
    """Return the rows of all pages, and the number of pages."""
    rows, after, pages = [], "", 0
    while after is not None:
        page = client.get(address, {"limit": limit, "after": after, **query}).json()
        rows, after, pages = [*rows, *page["items"]], page["next"], pages + 1
        assert len(page["items"]) <= limit
    return rows, pages


@pytest.fixture
def draft(team):
    """Return a draft that can be launched for at most 1.20 US dollars."""
    model = factories.make_model(input_price=Decimal(1), output_price=Decimal(2), max_output_tokens=100)
    return factories.make_experiment("draft", owner=team.owner, models=[model])


def test_experiments_are_listed_with_their_progress(api, pilot):
    (row,) = api.get(f"{ROOT}/experiments").json()["items"]
    assert row == api.get(PILOT).json()
    trials = Trial.objects.filter(run__experiment=pilot, run__condition__stage="generate")
    assert (row["name"], row["owner"], row["dataset"]) == ("pilot", "owner", str(pilot.dataset))
    assert row["trials"] == trials.count()
    assert row["done"] == trials.filter(status="done").count()


@pytest.mark.parametrize("table", ["trials", "gradings"])
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_of_rows_are_the_rows_of_the_export(table, limit, api, pilot):
    exported = [json.loads(line) for line in b"".join(export_chunks(pilot, table, "jsonl")).splitlines()]
    rows, pages = read_all(api, f"{PILOT}/{table}", limit)
    assert rows == exported
    assert pages == -(-len(exported) // limit)


def test_the_filters_of_the_trial_list_apply(api, pilot):
    condition = pilot.conditions.filter(stage="generate").first()
    rows, _ = read_all(api, f"{PILOT}/trials", 2, condition=condition.condition_id, status="done")
    expected = Trial.objects.filter(run__condition=condition, status="done").count()
    assert len(rows) == expected > 0
    refused = api.get(f"{PILOT}/trials", {"colour": "blue"})
    assert refused.status_code == 422
    assert "no filter colour" in refused.json()["detail"]


def test_rows_that_are_added_meanwhile_neither_repeat_nor_hide_others(api, team):
    for n in range(4):
        factories.make_experiment(f"study-{n}", owner=team.owner)
    first = api.get(f"{ROOT}/experiments", {"limit": 2}).json()
    factories.make_experiment("later", owner=team.owner)
    Experiment.objects.filter(slug="study-0").delete()
    second = api.get(f"{ROOT}/experiments", {"limit": 10, "after": first["next"]}).json()
    names = [row["name"] for row in [*first["items"], *second["items"]]]
    assert names == ["study-0", "study-1", "study-2", "study-3", "later"]


@pytest.mark.parametrize("after", ["x", "!!!!", "MQ==.", "LTE", "MS4yLjM", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ"])
def test_a_cursor_that_is_none_is_refused_by_its_name(after, api, pilot):
    for address in (f"{ROOT}/experiments", f"{PILOT}/trials"):
        answer = api.get(address, {"after": after})
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"field": "after", "message": "is no cursor of this list"}]


def test_problem_details_name_the_field(api, pilot):
    answer = api.get(f"{PILOT}/trials", {"limit": "many"})
    assert answer["Content-Type"] == "application/problem+json"
    content = answer.json()
    assert (content["status"], content["title"], content["type"]) == (422, "Unprocessable Entity", "about:blank")
    assert [one["field"] for one in content["errors"]] == ["limit"]
    posted = post(api, f"{PILOT}/launch", {"pilot": 0, "policy": "cheap"})
    assert {one["field"] for one in posted.json()["errors"]} == {"pilot", "policy"}


@pytest.mark.parametrize(
    "address", ["/api/v1/", "/api/v1/nothing", "/api/v1/experiments/no-such", "/api/v1/runs/999999"]
)
def test_a_missing_address_has_problem_details_too(address, api):
    answer = api.get(address)
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")


def test_a_wrong_method_names_the_right_ones(api, pilot):
    answer = api.get(f"{PILOT}/launch")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert answer.json()["status"] == 405


def test_an_unchanged_answer_is_304(api, pilot):
    first = api.get(PILOT)
    assert first["Cache-Control"] == "private, no-cache"
    again = api.get(PILOT, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    Experiment.objects.filter(pk=pilot.pk).update(title="New")
    changed = api.get(PILOT, headers={"If-None-Match": first["ETag"]})
    assert (changed.status_code, changed.json()["title"]) == (200, "New")


@pytest.mark.parametrize("part", ["results", "figures"])
def test_unchanged_results_and_figures_are_304_until_an_answer_is_graded(part, api, pilot):
    address = f"{PILOT}/{part}"
    first = api.get(address)
    assert first.status_code == 200
    again = api.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    make_gradings(pilot, "contains", lambda trial: 1, kind="rule")
    assert api.get(address, headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_results_are_those_of_the_results_page(api, pilot, client):
    scores = api.get(f"{PILOT}/results").json()["scores"]
    client.force_login(pilot.owner)
    lines = client.get("/experiments/pilot/results/").context["results"].summary.lines
    shown = [
        (line.measure.label, line.condition, line.score.mean, line.score.low, line.score.high, line.score.n)
        for line in lines
    ]
    assert shown == [
        tuple(row[name] for name in ("measure", "condition", "mean", "low", "high", "n")) for row in scores
    ]
    assert scores
    assert all(row["method"] or row["reason"] for row in scores)
    assert all(row["n"] <= row["of"] for row in scores)


def test_an_unknown_wave_of_results_is_refused_by_its_name(api, pilot):
    answer = api.get(f"{PILOT}/results", {"wave": "none"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "wave")


def test_the_status_is_that_of_the_command(api, pilot):
    report = api.get(f"{PILOT}/status").json()
    assert report["experiment"] == "pilot"
    assert len(report["runs"]) == pilot.runs.generating().count()


def test_the_status_of_a_large_experiment_reads_the_scores_that_a_worker_added_up(api, pilot, monkeypatch):
    small = api.get(f"{PILOT}/status").json()
    assert small["scores"]
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", 0)
    waiting = api.get(f"{PILOT}/status").json()
    assert (waiting["scores"], OLDER_SCORES in waiting["warnings"]) == ([], True)
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
    assert api.get(f"{PILOT}/status").json() == small


def test_the_status_counts_answers_again_only_after_a_change(api, pilot):
    def list_reads_of_trials():
        with CaptureQueriesContext(connection) as queries:
            report = api.get(f"{PILOT}/status").json()
        return sum(run["empty"] for run in report["runs"]), [
            query["sql"]
            for query in queries.captured_queries
            if 'AS "truncated"' in query["sql"] or 'AS "served_provider"' in query["sql"]
        ]

    empty, reads = list_reads_of_trials()
    assert len(reads) == 2, "the kinds of answers, and who served them"
    assert list_reads_of_trials() == (empty, [])
    trial = Trial.objects.filter(status="done").exclude(answer="").first()
    with disable_triggers():
        Trial.objects.filter(pk=trial.pk).update(answer="")
        Run.objects.filter(pk=trial.run_id).update(n_attempts=F("n_attempts") + 1)
    assert list_reads_of_trials()[0] == empty + 1


def test_designs_are_read(api, pilot):
    dataset = pilot.dataset
    address = f"{ROOT}/datasets/{dataset.slug}/{dataset.version}"
    assert api.get(address).json()["content_hash"] == dataset.content_hash
    items, _ = read_all(api, f"{address}/items", 3)
    assert [item["key"] for item in items] == list(dataset.items.order_by("pk").values_list("key", flat=True))
    prompt = pilot.prompts.get()
    assert api.get(f"{ROOT}/prompts/{prompt.name}/{prompt.version}").json()["messages"] == prompt.messages
    models, _ = read_all(api, f"{ROOT}/models", 1)
    assert {"small", "large"} <= {model["name"] for model in models}


def test_no_answer_names_an_address_or_a_key_of_an_endpoint(api, pilot):
    endpoint = pilot.language_models.first().endpoint
    Endpoint.objects.filter(pk=endpoint.pk).update(key_env="EVALSITE_KEY_SECRET")
    addresses = [f"{ROOT}/models", f"{PILOT}/design", f"{PILOT}/status", f"{PILOT}/runs", PILOT]
    content = " ".join(api.get(address).content.decode() for address in addresses)
    assert "EVALSITE_KEY_SECRET" not in content
    assert endpoint.base_url not in content


def test_the_design_creates_the_same_experiment_again(api, pilot):
    design = api.get(f"{PILOT}/design").json() | {"experiment": "again"}
    answer = post(api, f"{ROOT}/experiments", {"design": design})
    assert (answer.status_code, answer["Location"]) == (201, f"{ROOT}/experiments/again")
    assert answer.json()["status"] == "draft"
    created = api.get(f"{ROOT}/experiments/again/design").json()
    assert created | {"experiment": "pilot"} == api.get(f"{PILOT}/design").json()


def test_a_wrong_design_names_every_key(api, pilot):
    answer = post(
        api, f"{ROOT}/experiments", {"file": "experiment: x\ndataset: none\nmodels: [nobody]\nprompts: [absent]"}
    )
    assert answer.status_code == 422
    assert {"dataset", "models[0]", "prompts[0]"} <= {one["field"] for one in answer.json()["errors"]}
    for body in ({}, {"file": "a", "design": {}}):
        assert post(api, f"{ROOT}/experiments", body).json()["errors"][0]["field"] == "file"


def test_a_viewer_creates_nothing(team):
    answer = post(make_api_client(team.outsider), f"{ROOT}/experiments", {"file": "experiment: x"})
    assert (answer.status_code, Experiment.objects.count()) == (404, 0)


def test_an_estimate_does_not_say_that_calls_of_unknown_cost_cost_nothing(api, pilot):
    assert post(api, f"{PILOT}/estimate").json()["spent_usd"] == "0.00000000"
    Run.objects.update(n_unpriced=1)
    assert post(api, f"{PILOT}/estimate").json()["spent_usd"] is None


def test_a_launch_is_estimated_and_starts_the_trials(api, draft):
    address = f"{ROOT}/experiments/draft"
    estimate = post(api, f"{address}/estimate").json()
    assert estimate["to_do"] > 0
    assert not Run.objects.exists()
    launched = post(api, f"{address}/launch").json()
    assert (launched["is_new"], launched["trials_added"]) == (True, estimate["to_do"])
    assert Trial.objects.count() == estimate["to_do"]
    assert post(api, f"{address}/launch").json()["is_new"] is False
    assert post(api, f"{address}/pause", {"reason": "lunch"}).json()["changed"] == 1
    assert Run.objects.get().stop_reason == "lunch"
    assert post(api, f"{address}/resume").json()["changed"] == 1
    assert post(api, f"{address}/cancel").json()["errors"][0]["field"] == "reason"
    assert post(api, f"{address}/cancel", {"reason": "wrong model"}).json()["changed"] == 1
    assert post(api, f"{address}/archive", {"reason": "done"}).json()["status"] == "archived"


def test_a_launch_never_exceeds_its_limit(api, draft):
    address = f"{ROOT}/experiments/draft"
    ceiling = Decimal(post(api, f"{address}/estimate").json()["ceiling_usd"])
    refused = post(api, f"{address}/launch", {"max_usd": str(ceiling / 2)})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (409, "max_usd")
    assert not Trial.objects.exists()
    Experiment.objects.filter(pk=draft.pk).update(max_usd=Decimal("0.0001"))
    assert post(api, f"{address}/launch", {"max_usd": str(ceiling / 2)}).status_code == 200, (
        "the budget is a hard limit"
    )


def test_a_launch_with_unknown_prices_has_no_limit(api, team):
    models = [factories.make_model(input_price=None)]
    factories.make_experiment("unpriced", owner=team.owner, models=models, max_usd=None)
    address = f"{ROOT}/experiments/unpriced"
    assert post(api, f"{address}/estimate").json()["ceiling_usd"] is None
    assert post(api, f"{address}/launch", {"max_usd": "1000000"}).status_code == 409


def test_a_cost_that_the_design_wants_confirmed_has_to_be_accepted(api, draft):
    Experiment.objects.filter(pk=draft.pk).update(confirm_above_usd=Decimal("0.0001"))
    address = f"{ROOT}/experiments/draft/launch"
    refused = post(api, address)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (409, "accept_cost")
    assert post(api, address, {"accept_cost": True}).status_code == 200


def test_a_repeated_request_gets_the_first_answer(api, pilot):
    design = api.get(f"{PILOT}/design").json() | {"experiment": "once"}
    first = post(api, f"{ROOT}/experiments", {"design": design}, **{"Idempotency-Key": "k1"})
    again = post(api, f"{ROOT}/experiments", {"design": design}, **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert (first.json(), again["Idempotent-Replayed"]) == (again.json(), "true")
    assert "Idempotent-Replayed" not in first
    assert Experiment.objects.filter(slug="once").count() == 1


def test_another_request_under_the_same_key_is_refused(api, pilot, team):
    design = api.get(f"{PILOT}/design").json()
    key = {"Idempotency-Key": "k1"}
    assert post(api, f"{ROOT}/experiments", {"design": design | {"experiment": "one"}}, **key).status_code == 201
    answer = post(api, f"{ROOT}/experiments", {"design": design | {"experiment": "two"}}, **key)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Idempotency-Key")
    other = make_api_client(team.operator)
    assert post(other, f"{ROOT}/experiments", {"design": design | {"experiment": "two"}}, **key).status_code == 201


def test_a_refused_request_does_not_use_up_its_key(api, draft):
    address, key = f"{ROOT}/experiments/draft/launch", {"Idempotency-Key": "k1"}
    Experiment.objects.filter(pk=draft.pk).update(confirm_above_usd=Decimal("0.0001"))
    assert post(api, address, **key).status_code == 409
    Experiment.objects.filter(pk=draft.pk).update(confirm_above_usd=None)
    assert post(api, address, **key).status_code == 200


@pytest.mark.parametrize("key", ["x" * 129, "a\tb"])
def test_an_unusable_key_is_refused(key, api, draft):
    answer = post(api, f"{ROOT}/experiments/draft/launch", **{"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_a_table_is_streamed_as_its_export(file_format, api, pilot):
    answer = api.get(f"{PILOT}/export/trials.{file_format}")
    assert answer.streaming
    assert b"".join(answer) == b"".join(export_chunks(pilot, "trials", file_format))


@pytest.mark.parametrize("name", ["nothing.csv", "trials.xlsx", "items.csv?status=done", "trials.csv?wave=none"])
def test_a_table_that_does_not_exist_is_refused(name, api, pilot):
    answer = api.get(f"{PILOT}/export/{name}")
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")


def test_a_blind_reader_is_asked_to_reveal_names_first(api, pilot):
    BlindReading.start(pilot, pilot.owner)
    trial = Trial.objects.filter(run__experiment=pilot).first()
    for address in (
        PILOT,
        f"{PILOT}/trials",
        f"{PILOT}/results",
        f"{ROOT}/trials/{trial.pk}",
        f"{ROOT}/runs/{trial.run_id}",
    ):
        answer = api.get(address)
        assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json"), address
        assert b"small" not in answer.content
    assert api.get(f"{ROOT}/experiments").status_code == 200


def test_the_document_describes_every_operation(api):
    document = api.get(f"{ROOT}/openapi.json").json()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len(operations) >= 24
    assert all(one["summary"] and one["security"] == [{"AccessToken": []}] for one in operations)
    assert document["components"]["securitySchemes"]["AccessToken"] == {"type": "http", "scheme": "bearer"}


def test_the_page_shows_every_operation_without_other_hosts(client, team):
    client.force_login(team.owner)
    page = client.get("/api/docs")
    for address in ("/api/v1/experiments/{name}/launch", "max_usd", "Idempotency-Key"):
        assert address in page.content.decode()
    assert "script-src 'self'" in page["Content-Security-Policy"]
    assert b"//cdn" not in page.content
    assert b"`" not in page.content
