"""The results tab: its content, its access rules, and the freshness of its numbers."""

import html
import re

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.models import CachedAggregate, Grading
from grading_app.models.gradings import allow_superseding
from grading_app.results import cached_aggregates
from grading_app.results.cached_aggregates import compute_rows
from runs_app.models import Trial
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def experiment():
    created = factories.make_experiment(samples=2, scorers=["numeric"], dataset=factories.make_dataset(items=6))
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, _, index: item.target if index else "none")
    grade(created, by="a test")
    return created


def open_results(client, experiment, **query):
    client.force_login(experiment.owner)
    return client.get(reverse("experiment_results", args=[experiment.slug]), query)


def open_figure(client, experiment, name="accuracy", **query):
    client.force_login(experiment.owner)
    return client.get(reverse("figure_file", args=[experiment.slug, name, "svg"]), query)


def test_the_page_shows_scores_figures_and_counts(client, experiment):
    page = open_results(client, experiment)
    assert page.status_code == 200
    text = page.content.decode()
    assert "100.0 %" in text
    assert "Number within tolerance" in text
    assert reverse("figure_file", args=["pilot", "accuracy", "svg"]) in text
    assert "/trials/?experiment=pilot&amp;condition=" in text


def test_an_experiment_without_answers_shows_a_message(client):
    created = factories.make_experiment()
    page = open_results(client, created)
    assert "No answers yet" in page.content.decode()


def test_the_refused_count_includes_failed_refusals_and_links_to_them(client):
    created = factories.make_experiment(dataset=factories.make_dataset(items=5))
    (run,) = factories.make_runs(created)
    outcomes = [
        factories.build_failed_fields("content_refused", "refused by the provider"),
        factories.build_failed_fields("content_refused", "refused by the provider"),
        factories.build_done_fields(answer="I cannot say.", refused=True),
        factories.build_failed_fields("timeout", "no reply"),
        factories.build_done_fields(answer="4"),
    ]
    for trial, outcome in zip(factories.plan_trials(run), outcomes, strict=True):
        Trial.objects.filter(pk=trial.pk).update(**outcome)
    page = open_results(client, created)
    (row,) = page.context["answers"]["table"].rows
    assert (row["done"], row["failed"], row["refused"]) == (2, 3, 3)
    link = re.search(r'href="([^"]*&amp;refused=true)">3</a>', page.content.decode())
    listed = client.get(html.unescape(link[1]))
    assert listed.content.decode().count("refused by the provider") >= 2
    assert set(listed.context["page"].keys) == {trial.pk for trial in list(run.trials.order_by("pk"))[:3]}


def test_answers_without_grades_show_a_message(client):
    created = factories.make_experiment()
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda *cell: "4")
    assert "Not graded yet" in open_results(client, created).content.decode()


def test_new_answers_and_grades_appear_immediately(client, experiment):
    def shown():
        lines = open_results(client, experiment).context["results"].summary.lines
        return [(line.score.n, line.score.missing) for line in lines]

    assert shown() == [(6, 6)]
    with allow_superseding():
        Grading.objects.all().delete()
    grade(experiment, scorers=["numeric"], by="a test")
    with allow_superseding():
        Grading.objects.filter(parse_ok=False).update(parse_ok=True, parse_error="", score=0)
    grade(experiment, scorers=["exact_match"], by="a test")
    assert shown() == [(12, 0), (12, 0)]


@pytest.mark.slow
def test_regraded_answers_change_the_figure(client, experiment):
    before = open_figure(client, experiment).content
    with allow_superseding():
        Grading.objects.update(score=0, parse_ok=True, parse_error="")
    assert open_figure(client, experiment).content != before  # Triggers count every write.
    grade(experiment, force=True, scorers=["exact_match"], by="a test")
    assert open_figure(client, experiment).content != before


def test_a_wave_can_be_chosen_and_an_unknown_wave_is_not_found(client, experiment):
    (run,) = factories.make_runs(experiment, wave=1)
    factories.plan_trials(run, answer=lambda item, *cell: item.target)
    grade(experiment, by="a test")
    assert "wave-1" in open_results(client, experiment).content.decode()
    (line,) = open_results(client, experiment, wave="1").context["results"].summary.lines
    assert (line.score.n, line.score.missing) == (12, 0)
    assert open_results(client, experiment, wave="7").status_code == 404
    assert open_results(client, experiment, wave="x").status_code == 404


def test_a_figure_is_svg_with_a_policy_against_scripts(client, experiment):
    answer = open_figure(client, experiment)
    assert answer["Content-Type"] == "image/svg+xml"
    assert answer.content.startswith(b"<svg")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert "script-src 'none'" in answer["Content-Security-Policy"]


def test_a_figure_is_cached_by_browsers_only_for_its_data_state(client, experiment):
    page = open_results(client, experiment)
    shown = page.context["figure"]
    assert shown["name"] == "accuracy"
    assert "immutable" in client.get(shown["address"])["Cache-Control"]
    assert "no-store" in open_figure(client, experiment, state="old")["Cache-Control"]


@pytest.mark.parametrize("query", [{"theme": "pink"}, {"width": "huge"}, {"wave": "9"}])
def test_unknown_objects_are_404(client, experiment, query):
    assert open_figure(client, experiment, **query).status_code == 404


def test_a_figure_without_data_is_404(client, experiment):
    assert open_figure(client, experiment, "norms").status_code == 404
    assert open_figure(client, experiment, "unheard-of").status_code == 404


def test_other_users_get_404_until_the_experiment_is_shared(client, experiment):
    client.force_login(factories.make_user("viewer", permissions.VIEWER))
    addresses = [
        reverse("experiment_results", args=["pilot"]),
        reverse("figure_file", args=["pilot", "accuracy", "svg"]),
        reverse("experiment_export", args=["pilot", "trials", "csv"]),
    ]
    assert [client.get(address).status_code for address in addresses] == [404] * 3
    experiment.sharing = "group"
    experiment.save()
    assert [client.get(address).status_code for address in addresses] == [200] * 3


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_the_conditions(client):
    def count_queries(slug, models, prompts):
        created = factories.make_experiment(
            slug,
            models=[factories.make_model(f"m{at}") for at in range(models)],
            prompts=[factories.make_prompt(f"{slug}{at}") for at in range(prompts)],
            scorers=["numeric"],
        )
        for run in factories.make_runs(created):
            factories.plan_trials(run, answer=lambda *cell: "4")
        grade(created, by="a test")
        client.force_login(created.owner)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(reverse("experiment_results", args=[created.slug])).status_code == 200
        return len(queries)

    count_queries("first", 1, 1)  # The first request reads values that later requests have in memory.
    assert count_queries("large", 6, 3) == count_queries("small", 2, 1)


@pytest.mark.slow
def test_a_large_experiment_has_the_same_results_from_a_worker(client, monkeypatch):
    items = [{"key": f"p-{n}", "category": "ab"[n % 2], "norms": {"valence": 1 + n % 4}} for n in range(6)]
    created = factories.make_experiment(
        dataset=factories.make_dataset("pictures", items), dimensions=[factories.make_dimension("valence")], samples=1
    )
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, *_: {"answer": "2", "rating": 1 + item.position % 5})
    at_once = open_results(client, created)
    pictures = [open_figure(client, created, name).content for name in ("ratings", "norms")]
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", 3)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    cache.clear()
    CachedAggregate.objects.all().delete()
    waiting = open_results(client, created)
    assert "A worker is calculating" in waiting.content.decode()
    assert 'hx-select="#results"' in waiting.content.decode(), "the page asks for the result until it is there"
    assert "figures" not in waiting.context
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    cache.clear()
    with CaptureQueriesContext(connection) as queries:
        stored = open_results(client, created)
    sources = ("runs_app_trial", "runs_app_answer", "grading_app_answerscore")
    read = [one for one in queries if any(source in one["sql"] for source in sources)]
    assert not read, "no row of a trial is read"
    assert 'hx-select="#results"' not in stored.content.decode()
    values = [
        [one["rows"].rows_of_text for one in (page.context["figure"], *page.context["figures"])]
        for page in (at_once, stored)
    ]
    assert values[0] == values[1]
    assert stored.context["screen"].conclusions == at_once.context["screen"].conclusions
    assert stored.context["screen"].items == at_once.context["screen"].items
    for table, same in zip(stored.context["screen"].tables, at_once.context["screen"].tables, strict=True):
        assert table.render("csv") == same.render("csv")
    assert stored.context["answers"]["table"].rows == at_once.context["answers"]["table"].rows
    assert [open_figure(client, created, name).content for name in ("ratings", "norms")] == pictures


def test_only_editors_can_request_grades(client, experiment, monkeypatch):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *task: tasks.append(task[1:]))
    address = reverse("experiment_grade", args=["pilot"])
    client.force_login(experiment.owner)
    grading = reverse("experiment_grading", args=["pilot"])
    assert 'value="exact_match"' in client.get(grading).content.decode()
    refused = client.post(address, {"scorer": ["exact_match", "guess"]})
    assert "guess is not one of the available choices" in refused.content.decode()
    client.post(address, {"scorer": ["exact_match"]})
    assert tasks == [(experiment.pk, ["exact_match"], "owner")]
    client.post(address)
    assert len(tasks) == 1
    teammate = factories.make_user("teammate", permissions.RESEARCHER)
    experiment.shared_with.add(teammate)
    client.force_login(teammate)
    assert client.post(address, {"scorer": "numeric"}).status_code == 404
    assert 'value="exact_match"' not in client.get(grading).content.decode()
