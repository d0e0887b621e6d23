"""Favourites: each person stars experiments and datasets for themselves, on lists, detail pages and home."""

import re

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.models import BlindReading
from runs_app.models import Experiment
from tests import factories
from tests.integration.pages.test_blind_readers_see_no_names import QUESTION

pytestmark = pytest.mark.django_db


@pytest.fixture
def shared(lab):
    """Return the experiment of the lab, shared with the group."""
    Experiment.objects.filter(pk=lab.experiment.pk).update(sharing="group")
    return lab.experiment


def star(client, row, starred="1", **fields):
    return client.post(row.get_star_url(), {"starred": starred, **fields})


def read_stars(client, address):
    """Return the pressed state of each star on the page, by the address that its button posts to."""
    text = client.get(address).content.decode()
    return dict(re.findall(r'formaction="([^"]+)" name="starred" value="[01]" aria-pressed="(true|false)"', text))


@pytest.mark.parametrize("kind", ["experiment", "dataset"])
def test_a_star_shows_on_the_list_the_page_and_home_of_one_person(shared, as_, kind):
    row = shared if kind == "experiment" else shared.dataset
    pages = [reverse(f"{kind}_list"), row.get_absolute_url()]
    mine = as_("researcher")
    assert [read_stars(mine, page)[row.get_star_url()] for page in pages] == ["false", "false"]
    star(mine, row)
    assert [read_stars(mine, page)[row.get_star_url()] for page in [*pages, "/"]] == ["true"] * 3
    assert [read_stars(as_("viewer"), page)[row.get_star_url()] for page in pages] == ["false", "false"]
    mine = as_("researcher")
    star(mine, row, "0")
    assert [read_stars(mine, page)[row.get_star_url()] for page in pages] == ["false", "false"]
    assert 'id="favourites"' not in mine.get("/").content.decode()


@pytest.mark.parametrize("kind", ["experiment", "dataset"])
def test_the_filter_shows_favourites_only(shared, as_, kind):
    row = shared if kind == "experiment" else shared.dataset
    other = factories.make_experiment("other", owner=shared.owner, sharing="group") if kind == "experiment" else None
    hidden = other or factories.make_dataset("other")
    client = as_("researcher")
    star(client, row)
    address = reverse(f"{kind}_list")
    assert set(read_stars(client, address)) >= {row.get_star_url(), hidden.get_star_url()}
    assert set(read_stars(client, f"{address}?favourite=true")) == {row.get_star_url()}
    assert row.get_star_url() not in read_stars(client, f"{address}?favourite=false")


def test_a_star_needs_no_script_and_returns_to_its_page(shared, as_):
    client = as_("researcher")
    address = "/experiments/?status=active"
    assert 'action="' not in re.search(r'<form id="star-form"[^>]*>', client.get(address).content.decode())[0]
    assert star(client, shared, next=address)["Location"] == address
    assert star(client, shared, next="https://elsewhere.example/")["Location"] == shared.get_absolute_url()


def test_a_repeated_star_is_one_star(shared, as_, people):
    for _ in range(2):
        star(as_("researcher"), shared)
    assert list(shared.starred_by.all()) == [people["researcher"]]
    through = Experiment.starred_by.through
    with pytest.raises(IntegrityError), transaction.atomic():
        through.objects.create(experiment=shared, user=people["researcher"])
    for _ in range(2):
        star(as_("researcher"), shared, "0")
    assert not shared.starred_by.exists()


def test_a_star_ends_with_the_right_to_see_the_row(shared, as_):
    client = as_("viewer")
    star(client, shared)
    star(client, shared.dataset)
    Experiment.objects.update(sharing="private")
    assert 'id="favourites"' not in client.get("/").content.decode()
    assert star(client, shared).status_code == 404


def test_a_blind_reader_can_star_and_stays_blind(shared, as_, people):
    BlindReading.start(shared, people["researcher"])
    client = as_("researcher")
    assert star(client, shared).status_code == 302
    assert read_stars(client, "/")[shared.get_star_url()] == "true"
    assert QUESTION in client.get(shared.get_absolute_url()).content.decode()


def test_the_number_of_queries_does_not_grow_with_favourites(shared, as_):
    client = as_("researcher")
    experiments = [factories.make_experiment(f"study-{n}", owner=shared.owner, sharing="group") for n in range(4)]
    counts = []
    for chosen in (experiments[:1], experiments[1:]):
        for experiment in chosen:
            star(client, experiment)
        client.get("/")
        with CaptureQueriesContext(connection) as queries:
            client.get("/")
        counts.append(len(queries))
    assert counts[0] == counts[1]
