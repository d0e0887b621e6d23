"""Each operation of the OpenAPI document: answers have an ETag, lists have pages, and errors are problem details."""

import json

import pytest
from django.test import Client

from evalsite.api.downloads import COUNTED_TABLES
from evalsite.api.urls import api as lab_api
from runs_app.models import ApiAllowance, Trial
from tests import factories
from tests.factories.tokens import make_api_client, make_bearer, make_token
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

PATHS = lab_api.get_openapi_schema()["paths"]
OPERATIONS = [(method, address) for address, methods in PATHS.items() for method in methods]
READS = [address for method, address in OPERATIONS if method == "get"]
LISTS = [
    address for address in READS if {"limit", "after"} <= {one["name"] for one in PATHS[address]["get"]["parameters"]}
]
ABSENT = {
    "name": "absent",
    "version": 1,
    "number": 999_999,
    "table": "trials",
    "figure": "scores",
    "file_format": "csv",
}


@shared_rows
def token(team_of_file, pilot_of_file):
    """Return the text of the owner's token. The owner has two experiments."""
    factories.make_experiment("second", owner=team_of_file.owner)
    return make_token(team_of_file.owner, "admin")[1]


@pytest.fixture
def client(token, monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 1e9)
    return make_bearer(token)


def fill_in(address, pilot):
    """Return the address of rows that exist."""
    is_of = {"dataset": pilot.dataset.slug, "prompt": pilot.prompts.get().name}
    name = next((value for kind, value in is_of.items() if f"/{kind}s/" in address), "pilot")
    trial = Trial.objects.filter(run__experiment=pilot).earliest("pk")
    number = trial.pk if "/trials/" in address else trial.run_id
    figure = "export" not in address
    return address.format(
        name=name, version=1, number=number, table="trials", figure="scores", file_format="csv" if figure else "jsonl"
    )


@pytest.mark.parametrize("address", READS)
def test_an_unchanged_answer_is_304_by_its_etag(address, client, pilot):
    if "{figure}" in address:
        figures = client.get("/api/v1/experiments/pilot/figures").json()["figures"]
        address = address.replace("{figure}", figures[0]["name"])
    address = fill_in(address, pilot)
    first = client.get(address)
    assert first.status_code == 200
    again = client.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, b"".join(again)) == (304, b"")
    assert client.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


def test_each_table_with_counters_has_an_etag(client, pilot):
    for table in COUNTED_TABLES:
        for kind in ("jsonl", "csv"):
            assert client.get(f"/api/v1/experiments/pilot/export/{table}.{kind}")["ETag"]


@pytest.mark.parametrize("address", LISTS)
def test_the_pages_of_a_list_are_its_rows_in_order(address, client, pilot):
    address = fill_in(address, pilot)
    whole = client.get(address, {"limit": 1000}).json()
    rows, after = [], ""
    while after is not None:
        page = client.get(address, {"limit": 1, "after": after}).json()
        rows, after = rows + page["items"], page["next"]
    assert rows == whole["items"]
    assert rows
    assert whole["next"] is None


def read_problem(answer, status):
    """Check that the answer has problem details with this status, and return them."""
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    content = json.loads(b"".join(answer))
    assert content["status"] == status
    assert {"type", "title", "detail"} <= content.keys()
    return content


@pytest.mark.parametrize(("method", "address"), OPERATIONS)
def test_each_refusal_is_a_problem_document(method, address, client, pilot, team):
    body = {} if method == "get" else {"data": {"reason": "test"}, "content_type": "application/json"}
    filled = fill_in(address, pilot)
    read_problem(getattr(Client(), method)(filled, **body), 401)
    if "{" in address:
        read_problem(getattr(client, method)(address.format(**ABSENT), **body), 404)
    read_problem(client.put(filled), 405)
    if address in LISTS and method == "get":
        problem = read_problem(client.get(filled, {"limit": "many"}), 422)
        assert [error["field"] for error in problem["errors"]] == ["limit"]
    if method == "post":
        read_problem(client.post(filled, "no JSON", content_type="application/json"), 400)
        if not address.endswith("/estimate"):  # It changes nothing, so a token that only reads may ask for it.
            read_problem(make_api_client(team.owner, "read").post(filled, **body), 403)


@pytest.mark.parametrize("address", READS)
def test_each_read_counts_for_the_limit_of_the_account(address, client, pilot, monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 1)
    monkeypatch.setattr(ApiAllowance, "PER_SECOND", 0)
    address = fill_in(address, pilot)
    client.get(address)
    answer = client.get(address)
    read_problem(answer, 429)
    assert answer["Retry-After"] == "1"


def test_the_document_has_operations_of_each_kind():
    assert len(READS) > 15
    assert len(LISTS) >= 8
    assert len(OPERATIONS) - len(READS) >= 7
