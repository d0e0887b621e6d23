"""The numbers for Prometheus: they equal the rows, and only operators read them."""

import json
import re
from decimal import Decimal

import pytest
from django.db.models import Sum
from prometheus_client.parser import text_string_to_metric_families

from evalsite.lib.ops.installation import ROOT
from runs_app.llm.calls import LOST
from runs_app.models import Endpoint, Experiment, Run, Trial
from tests.factories.tokens import make_api_client

pytestmark = pytest.mark.django_db


def read_metrics(client):
    """Return the value of each sample by its name and its labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.content.decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_the_numbers_equal_the_rows(team, pilot, django_assert_max_num_queries):
    run, other = pilot.runs.order_by("pk")
    Run.objects.filter(pk=run.pk).update(errors={"timeout": 2, LOST: 3}, n_attempts=40)
    Run.objects.filter(pk=other.pk).update(errors={"timeout": 5}, n_attempts=2)
    Endpoint.objects.filter(models__experiments=pilot).update(in_flight=7)
    Experiment.objects.filter(pk=pilot.pk).update(spent_usd=Decimal("1.25"))
    client = make_api_client(team.operator, "read")
    with django_assert_max_num_queries(12):
        numbers = read_metrics(client)
    assert numbers["evalsite_trials", "done"] == Trial.objects.filter(status="done").count()
    assert numbers["evalsite_errors_total", "timeout"] == 7
    assert numbers["evalsite_lease_expiries_total",] == 3
    assert numbers["evalsite_attempts_total",] == 42
    assert numbers["evalsite_spent_usd_total",] == 1.25
    assert (
        sum(n for name, n in numbers.items() if name[0] == "evalsite_calls_in_flight")
        == (Endpoint.objects.aggregate(n=Sum("in_flight"))["n"])
    )
    running = Run.objects.filter(status="running").aggregate(n=Sum("n_pending"))["n"] or 0
    assert numbers["evalsite_queue_depth",] == running


def test_each_metric_of_the_dashboard_is_exported(team, pilot):
    """A new site has no value for some of them; their names and types are there."""
    dashboard = json.loads((ROOT / "docs/deploy/grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked = {name.removesuffix("_total") for name in re.findall(r"evalsite_[a-z_]+", queries)}
    answer = make_api_client(team.operator).get("/metrics").content.decode()
    assert {family.name for family in text_string_to_metric_families(answer)} >= asked
    assert len(asked) > 5


def test_only_tokens_of_operators_that_reach_all_experiments_read_them(team, pilot):
    assert make_api_client(team.owner).get("/metrics").status_code == 404
    assert make_api_client(team.operator, "read").get("/metrics").status_code == 200
    answer = make_api_client(team.operator, experiment=pilot).get("/metrics")
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")


def test_a_new_site_has_numbers_too(team):
    numbers = read_metrics(make_api_client(team.operator))
    assert numbers["evalsite_queue_depth",] == numbers["evalsite_spent_usd_total",] == 0
