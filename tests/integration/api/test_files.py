"""Figures of the API, and tables that are sent only if their rows changed."""

import csv
import io

import pytest
from django.http import QueryDict

from evalsite.api.downloads import COUNTED_TABLES
from grading_app.publish.export.file_formats import TABLE_NAMES
from grading_app.publish.figures.figure_set import FigureSource
from runs_app.models import Run, Trial
from runs_app.models.annotations import annotate
from tests.factories.gradings import make_gradings
from tests.factories.tokens import make_api_client

pytestmark = pytest.mark.django_db

PILOT = "/api/v1/experiments/pilot"


@pytest.fixture
def api(team):
    return make_api_client(team.owner)


def test_figures_are_those_of_the_page_with_their_files(api, pilot):
    listed = api.get(f"{PILOT}/figures").json()
    shown = FigureSource(pilot, QueryDict()).list_figures()
    assert [one["name"] for one in listed["figures"]] == [one.name for one in shown]
    name = listed["figures"][0]["name"]
    assert api.get(f"{PILOT}/figures/{name}.svg").content.lstrip().startswith(b"<?xml")
    assert api.get(f"{PILOT}/figures/{name}.png").content.startswith(b"\x89PNG")
    assert api.get(f"{PILOT}/figures/{name}.pdf").content.startswith(b"%PDF")
    rows = list(csv.reader(io.StringIO(api.get(f"{PILOT}/figures/{name}.csv").content.decode())))
    assert len(rows) > 1


def test_a_figure_with_a_wrong_choice_names_the_fault(api, pilot):
    for address in ("figures?wave=none", "figures?mm=wide", "figures/a.svg?font=huge"):
        answer = api.get(f"{PILOT}/{address}")
        assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert api.get(f"{PILOT}/figures/nothing.svg").status_code == 404


@pytest.mark.parametrize("table", ["trials", "attempts", "gradings"])
def test_an_unchanged_table_is_304_without_rows(table, api, pilot):
    address = f"{PILOT}/export/{table}.jsonl"
    first = api.get(address)
    rows = b"".join(first)
    again = api.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert b"".join(api.get(address)) == rows
    assert api.get(f"{PILOT}/export/{table}.csv")["ETag"] != first["ETag"]
    assert api.get(f"{address}?status=done")["ETag"] != first["ETag"]


def test_a_new_grade_or_attempt_is_another_etag(api, pilot):
    tags = [api.get(f"{PILOT}/export/gradings.jsonl")["ETag"]]
    make_gradings(pilot, "contains", lambda trial: 1, kind="rule")
    tags.append(api.get(f"{PILOT}/export/gradings.jsonl")["ETag"])
    run = Run.objects.filter(experiment=pilot).first()
    Run.objects.filter(pk=run.pk).update(n_attempts=run.n_attempts + 1)
    tags.append(api.get(f"{PILOT}/export/gradings.jsonl")["ETag"])
    assert len(set(tags)) == 3


@pytest.mark.parametrize("table", sorted({*TABLE_NAMES} - COUNTED_TABLES))
def test_tables_whose_changes_no_counter_shows_have_no_etag(table, api, pilot):
    assert "ETag" not in api.get(f"{PILOT}/export/{table}.jsonl")


@pytest.mark.parametrize("query", ["flag=true", "tag=odd", "note=wrong"])
def test_rows_chosen_by_annotations_follow_them(query, api, pilot):
    address = f"{PILOT}/export/trials.jsonl?{query}"
    first = api.get(address)
    assert b"".join(first) == b""
    trial = Trial.objects.filter(run__experiment=pilot).first()
    kind, _, text = query.partition("=")
    annotate(trial, kind, "wrong target" if kind == "flag" else text, by=pilot.owner)
    again = api.get(address, headers={"If-None-Match": first.get("ETag", "")})
    assert (again.status_code, b"".join(again).count(b"\n")) == (200, 1)
