"""Blind reading: the names of models are hidden from one reader, on every page that reads results, until revealed."""

import re

import pytest
from django.core.cache import cache
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.models import BlindReading, CachedAggregate
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

NAMES = ("grampus", "narwhal", "porpoise")
PAGES = ("experiment_results", "experiment_matrix", "experiment_analysis")


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def study():
    items = [
        {**factories.build_question(n), "category": "ab"[n % 2], "norms": {"valence": 1 + n % 4}} for n in range(12)
    ]
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("questions", items),
        models=[factories.make_model(name) for name in NAMES],
        prompts=[factories.make_prompt("short")],
        dimensions=[factories.make_dimension("valence")],
        scorers=["numeric"],
        sharing="group",
    )
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(
            run,
            answer=lambda item, *_, number=number: {
                "answer": item.target if item.position > number else "-1",
                "rating": 1 + (item.position + number) % 6,
                "cost_usd": 0.001 * (1 + number),
            },
        )
    grade(experiment, by="test")
    return experiment


@pytest.fixture
def reader(client, study):
    client.force_login(study.owner)
    client.post(reverse("blind_start", args=["study"]))
    return client


def list_addresses(study):
    """Return every page and file of the results, with their figures, as this reader gets them."""
    first, second = study.conditions.order_by("pk").values_list("pk", flat=True)[:2]
    item = study.dataset.items.first().pk
    results, matrix, analysis = (reverse(name, args=["study"]) for name in PAGES)
    return [
        results,
        f"{results}?baseline={first}&missing=wrong",
        f"{results}?table=leaderboard&format=csv",
        f"{results}?baseline={first}&table=baseline-numeric-valence&format=latex",
        reverse("figure_file", args=["study", "cost-numeric-valence", "svg"]),
        matrix,
        f"{matrix}?measure=numeric:valence&a={first}&b={second}",
        f"{matrix}?table=matrix&format=csv",
        reverse("matrix_cell", args=["study", item, first]),
        analysis,
        f"{analysis}?table=factors&format=md",
        f"{reverse('compare')}?a=study:{first}&b=study:{second}",
        f"{reverse('compare')}?a=study:{first}&b=study:{second}&measure=numeric:valence&table=difference&format=csv",
        f"{reverse('compare')}?a=study:all&b=study:{second}",
        reverse("compare"),
    ]


def open_page(client, address):
    response = client.get(address)
    if waiting := list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)):
        compute_aggregates(waiting)
        return client.get(address)
    return response


@pytest.mark.slow
def test_no_page_figure_or_file_names_a_model(reader, study):
    checked = 0
    for address in list_addresses(study):
        response = open_page(reader, address)
        assert response.status_code == 200, address
        text = response.content.decode()
        assert not [name for name in NAMES if name in text], address
        assert not [name for name in NAMES if name in response.headers.get("Content-Disposition", "")], address
        for picture in re.findall(r'src="(/[^"]+\.svg[^"]*)"', text):
            figure = reader.get(picture.replace("&amp;", "&"))
            assert figure.status_code == 200, picture
            assert not [name for name in NAMES if name in picture or name in figure.content.decode()], picture
            checked += 1
    assert checked > 20, "many figures were drawn"


@pytest.mark.slow
def test_letters_have_a_stable_random_order(reader, study):
    reading = BlindReading.objects.get()
    assert sorted(reading.order) == sorted(study.language_models.values_list("pk", flat=True))
    board = open_page(reader, reverse("experiment_results", args=["study"])).context["results"].board
    assert [row.label for row in board.rows] == ["Model A", "Model B", "Model C"]
    models = dict(study.conditions.values_list("pk", "model"))
    assert [models[row.condition] for row in board.rows] == reading.order
    orders = set()
    for at in range(20):
        second_reader = factories.make_user(f"reader-{at}", permissions.VIEWER)
        orders.add(tuple(BlindReading.start(study, second_reader).order))
    assert len(orders) > 1


def test_revealing_requires_post_and_is_recorded(reader, study):
    address = reverse("blind_reveal", args=["study"])
    assert reader.get(address).status_code == 405
    assert BlindReading.objects.get().revealed_at is None
    answer = reader.post(address, {"next": reverse("experiment_matrix", args=["study"])})
    assert answer["Location"] == reverse("experiment_matrix", args=["study"])
    assert BlindReading.objects.get().revealed_at is not None
    page = open_page(reader, reverse("experiment_results", args=["study"])).content.decode()
    assert all(name in page for name in NAMES)
    assert "owner: names hidden" in page
    reader.post(address)
    assert BlindReading.objects.count() == 1


def test_another_reader_sees_names_and_the_record(reader, study, client):
    second_reader = factories.make_user("visitor", permissions.VIEWER)
    client.force_login(second_reader)
    page = open_page(client, reverse("experiment_results", args=["study"])).content.decode()
    assert "grampus" in page
    assert "owner: names hidden" in page
    assert "not revealed yet" in page


def test_hiding_again_draws_a_new_order_and_keeps_the_first_record(reader, study):
    reader.post(reverse("blind_reveal", args=["study"]))
    reader.post(reverse("blind_start", args=["study"]))
    reader.post(reverse("blind_start", args=["study"]))
    first, second = BlindReading.objects.all()
    assert first.revealed_at is not None
    assert second.revealed_at is None


def test_the_database_keeps_the_record(reader, study):
    BlindReading.objects.get().reveal()
    for change in (
        lambda: BlindReading.objects.update(revealed_at=None),
        lambda: BlindReading.objects.update(order=[]),
        lambda: BlindReading.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError, match="blind reading"), transaction.atomic():
            change()
    assert not BlindReading.objects.get().reveal(), "it was revealed before"


def test_a_redirect_to_another_site_is_ignored(reader):
    answer = reader.post(reverse("blind_reveal", args=["study"]), {"next": "https://elsewhere.example/"})
    assert answer["Location"] == reverse("experiment_results", args=["study"])


@pytest.mark.slow
def test_hiding_names_costs_a_constant_number_of_queries(reader, study):
    address = reverse("experiment_matrix", args=["study"])

    def count_queries():
        open_page(reader, address)
        with CaptureQueriesContext(connection) as queries:
            reader.get(address)
        return len(queries)

    few = count_queries()
    for at in range(5):
        BlindReading.start(study, factories.make_user(f"reader-{at}", permissions.VIEWER)).reveal()
    assert count_queries() == few


@pytest.mark.parametrize("query", ["", "?status=done", "?experiment="])
def test_the_trial_list_of_all_experiments_asks_to_reveal_names(reader, study, query):
    page = reader.get(reverse("trial_list") + query).content.decode()
    assert "Reveal them first" in page
    assert "grampus" not in page


def test_a_print_figure_asks_to_reveal_names_and_a_results_figure_has_letters(reader, study):
    address = reverse("figure_file", args=["study", "ratings", "svg"])
    assert reader.get(f"{address}?mm=90").status_code == 403
    assert "Reveal them first" not in reader.get(address).content.decode()


def test_revealing_redirects_to_the_page_with_names(reader, study):
    address = reverse("trial_list") + "?experiment=study"
    assert f'name="next" value="{address}"' in reader.get(address).content.decode()
    answer = reader.post(reverse("blind_reveal", args=["study"]), {"next": address})
    assert answer["Location"] == address
    assert "grampus" in reader.get(address).content.decode()


def test_only_the_blind_reader_is_asked_to_reveal_names(reader, study, client):
    client.force_login(factories.make_user("visitor", permissions.VIEWER))
    page = client.get(reverse("trial_list") + "?experiment=study").content.decode()
    assert "Reveal them first" not in page
    assert "grampus" in page


def test_other_experiments_are_not_hidden(reader, study):
    factories.make_experiment("other", dataset=factories.make_dataset("more", 2), owner=study.owner)
    page = reader.get(reverse("trial_list") + "?experiment=other").content.decode()
    assert "Reveal them first" not in page


def test_a_blind_reader_without_access_gets_404(reader, study, client):
    study.__class__.objects.filter(pk=study.pk).update(sharing="private")
    second_reader = factories.make_user("visitor", permissions.VIEWER)
    BlindReading.start(study, second_reader)
    client.force_login(second_reader)
    assert client.get(reverse("experiment_report", args=["study"])).status_code == 404
