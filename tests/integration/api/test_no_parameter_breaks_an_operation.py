"""Every operation of the OpenAPI document, with wrong and odd values: no request ends with an error of the site."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalsite.api.urls import api as lab_api
from runs_app.models import ApiAllowance, Run
from tests import factories
from tests.factories.tokens import make_api_client

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

DOCUMENT = lab_api.get_openapi_schema()
OPERATIONS = [(method, address) for address, methods in DOCUMENT["paths"].items() for method in methods]
ODD_TEXTS = [
    "",
    "0",
    "-1",
    "9" * 40,
    "1e400",
    "NaN",
    "null",
    "\x00",
    "\ud7ff",
    "%00",
    "../..",
    "'; --",
    "🙂" * 90,
    "x" * 5000,
]
TEXTS = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=30))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=5,
)


@pytest.fixture
def client(team, pilot, monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 1e9)
    factories.make_experiment("draft", owner=team.owner)
    return make_api_client(team.owner)


def list_body_fields(operation):
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return []
    return list(DOCUMENT["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"])


@pytest.mark.parametrize(("method", "address"), OPERATIONS, ids=lambda part: part)
def test_odd_values_are_refused_or_answered(method, address, client, pilot):
    operation = DOCUMENT["paths"][address][method]
    queries = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
    known = {
        "name": st.sampled_from(["pilot", "draft", pilot.dataset.slug, pilot.prompts.get().name, "absent"]),
        "version": st.sampled_from([0, 1, 2**31, 2**63, 10**30]),
        "number": st.sampled_from([0, Run.objects.earliest("pk").pk, 2**63 - 1, 2**63, 10**30]),
        "table": st.sampled_from(["trials", "gradings", "records", "items", "absent"]),
        "figure": st.sampled_from(["agreement-confusion", "scores", "absent"]),
        "file_format": st.sampled_from(["csv", "jsonl", "svg", "xml"]),
    }
    paths = {one["name"]: known[one["name"]] for one in operation["parameters"] if one["in"] == "path"}
    bodies = st.dictionaries(st.sampled_from(list_body_fields(operation) or ["none"]), VALUES, max_size=4)

    @settings(max_examples=30, suppress_health_check=list(HealthCheck))
    @given(
        path=st.fixed_dictionaries(paths),
        query=st.dictionaries(st.sampled_from([*queries, "colour"]), TEXTS, max_size=3),
        body=st.one_of(bodies, VALUES),
        raw=st.one_of(st.none(), st.binary(max_size=20)),
        key=st.one_of(st.none(), st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=140)),
    )
    def send(path, query, body, raw, key):
        headers = {} if key is None else {"Idempotency-Key": key}
        if method == "get":
            answer = client.get(address.format(**path), query, headers=headers)
        else:
            content = json.dumps(body) if raw is None else raw
            answer = client.post(address.format(**path), content, content_type="application/json", headers=headers)
        content = b"".join(answer) if answer.streaming else answer.content
        assert answer.status_code < 500
        if answer.status_code >= 400:
            assert answer["Content-Type"] == "application/problem+json"
            assert json.loads(content)["status"] == answer.status_code

    send()
