"""The analysis page: a worker computes its tables, the scope is in the address, and every table is a file."""

import pytest
from django.urls import reverse
from django.utils.html import escape

from evalsite.lib import permissions
from grading_app.models import CachedAggregate
from grading_app.results.cached_aggregates import compute_rows
from grading_app.tasks import compute_aggregates
from runs_app.models import Annotation
from tests import factories
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def study():
    items = [{"key": f"picture-{n}", "category": "AB"[n % 2], "norms": {"valence": 2 + n % 3}} for n in range(12)]
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("pictures", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=2,
    )
    for run in factories.make_runs(experiment, status="done"):
        above = run.condition.model.name == "b"
        factories.plan_trials(
            run, answer=lambda item, _, index, above=above: _rating(item.position % 3 + above + index)
        )
    return experiment


def _rating(number):
    return {"answer": str(number + 1), "rating": number + 1}


@pytest.fixture
def owner(client, study):
    client.force_login(study.owner)
    return client


def build_address(**query):
    return reverse("experiment_analysis", args=["study"], query=query)


def compute_and_open(client, **query):
    """Open the page, let a worker compute, and open it again."""
    client.get(build_address(**query))
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
    return client.get(build_address(**query))


@pytest.mark.slow
def test_the_page_shows_that_a_worker_computes_the_tables(owner):
    waiting = owner.get(build_address())
    assert "A worker is calculating" in waiting.content.decode()
    assert "Scores by condition" not in waiting.content.decode()
    page = compute_and_open(owner).content.decode()
    for heading in ("Descriptives", "Against norms", "Between conditions", "Variance and design", "Outliers"):
        assert f">{heading}</h2>" in page
    assert "b scores 1.00 above a on 12 items" in page
    assert "manage.py analyse study --measure valence" in page


def test_finished_sections_are_kept_and_the_page_shows_progress(owner):
    assert "0 of 7 sections are ready, next is Descriptives" in page_text(owner.get(build_address()))
    keys = list(CachedAggregate.objects.order_by("pk").values_list("pk", flat=True))
    assert compute_rows(keys, seconds=0) == keys[1:], "a task ends between two sections, and leaves the others"
    ready = CachedAggregate.objects.get(pk=keys[0]).ended_at
    page = owner.get(build_address())
    text = page_text(page)
    assert "1 of 7 sections are ready, next is Against norms" in text
    assert ">Descriptives</h2>" in text
    assert ">Outliers</h2>" not in text
    assert owner.get(build_address(table="descriptives", format="csv")).status_code == 200
    compute_aggregates(keys[1:])
    text = page_text(owner.get(build_address()))
    assert "A worker is calculating" not in text
    assert ">Outliers</h2>" in text
    assert CachedAggregate.objects.get(pk=keys[0]).ended_at == ready, "the first section was not computed again"


@pytest.mark.slow
def test_the_scope_is_in_the_url(owner):
    page = compute_and_open(owner, category="A", measure="arousal").content.decode()
    assert "Scope: Arousal" in page
    assert "Against norms" not in page, "the norms are of valence"
    rows = owner.get(build_address(category="A", measure="arousal", table="descriptives", format="csv"))
    assert rows["Content-Type"].startswith("text/csv")
    assert [line.split(",")[3] for line in rows.content.decode().split()[1:]] == ["6", "6"]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["csv", "json", "md", "latex"])
def test_every_table_can_be_downloaded(owner, file_format):
    compute_and_open(owner)
    response = owner.get(build_address(table="differences", format=file_format))
    assert response.status_code == 200
    assert "study-analysis-differences." in response["Content-Disposition"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [{"table": "anova", "format": "csv"}, {"table": "differences", "format": "exe"}, {"format": "csv"}],
)
def test_an_unknown_table_is_not_found(owner, query):
    compute_and_open(owner)
    assert owner.get(build_address(**query)).status_code == 404


@pytest.mark.parametrize("query", [{"measure": "beauty"}, {"wave": "9"}, {"margin": "-1"}, {"baseline": "x"}])
def test_an_invalid_choice_is_an_error_at_its_field(owner, query):
    response = owner.get(build_address(**query))
    assert response.status_code == 200
    assert set(response.context["form"].errors) == set(query)
    assert not CachedAggregate.objects.exists()


@pytest.mark.slow
def test_figures_show_the_numbers_of_their_tables(owner):
    page = compute_and_open(owner)
    figures = [figure for section in page.context["sections"] for figure in section["figures"]]
    names = {one["name"].removeprefix("analysis-") for one in figures}
    assert {"means", "norm-differences", "differences", "variance", "robustness"} <= names
    for figure in figures:
        for address in (figure["address"], figure["narrow"], dict(figure["files"])["dark"]):
            picture = owner.get(address)
            assert picture["Content-Type"] == "image/svg+xml"
            assert b"<svg" in picture.content
    assert owner.get(reverse("figure_file", args=["study", "analysis-pie", "svg"])).status_code == 404


def test_other_users_cannot_see_the_analysis(client, study):
    client.force_login(factories.make_user("visitor", permissions.VIEWER))
    assert client.get(build_address()).status_code == 404
    assert client.get(reverse("figure_file", args=["study", "analysis-means", "svg"])).status_code == 404


def test_an_experiment_without_scores_shows_what_is_missing(client):
    experiment = factories.make_experiment("study")
    client.force_login(experiment.owner)
    assert "No scores yet" in client.get(build_address()).content.decode()


@pytest.mark.slow
@pytest.mark.parametrize("scope", [{}, {"category": "A"}, {"missing": "wrong"}])
def test_the_number_of_queries_does_not_depend_on_the_scope(owner, scope, django_assert_max_num_queries):
    compute_and_open(owner, **scope)
    with django_assert_max_num_queries(30):
        assert owner.get(build_address(**scope)).context["sections"]


@pytest.mark.slow
def test_an_outlier_links_to_its_answers_and_to_the_analysis_without_it(owner, study):
    page = compute_and_open(owner)
    section = next(one for one in page.context["sections"] if one["name"] == "outliers")
    outlier = section["outliers"][0]
    item = outlier["item"]
    assert len(section["outliers"]) <= 8
    assert f"Analyse without {item.key}" in page.content.decode()
    assert owner.get(outlier["rows"][0]["address"]).status_code == 200
    assert tuple(outlier["rows"][0]["cell"].scores)
    assert f"without={item.pk}" in outlier["exclude"]
    without = compute_and_open(owner, without=str(item.pk))
    text = " ".join(without.content.decode().split())
    assert f"Sensitivity view: 1 item left out ({item.key})." in text
    rows = owner.get(build_address(without=str(item.pk), table="descriptives", format="csv")).content.decode().split()
    assert [line.split(",")[3] for line in rows[1:]] == ["11", "11"]
    choices = owner.get(build_address(without=str(item.pk), table="robustness", format="csv")).content.decode()
    assert ",Including the excluded items,12," in choices


@pytest.mark.parametrize("wrong", ["x", "0", "9" * 19, "-1"])
def test_an_item_of_another_dataset_is_an_error_of_the_scope(owner, wrong):
    page = owner.get(build_address(without=wrong))
    assert page.status_code == 200
    assert "without" in page.context["form"].errors


def test_the_first_table_of_differences_has_one_p_and_its_file_has_all_columns(owner):
    page = compute_and_open(owner)
    (section,) = [one for one in page.context["sections"] if one["name"] == "conditions"]
    heads = {table["table"].name: table["html"].head for table in section["tables"]}
    assert heads["differences"] == ["A", "B", "B − A", "95 % interval", "Test", "p (Holm)", "Common items"]
    assert {"p", "p (BH)", "p (permutation)", "p (Wilcoxon)", "Cohen's d"} <= set(heads["all_tests"])
    assert section["first"]["tables"] == section["tables"][:1]
    assert page_text(page).count(escape(section["beside"].sentence)) == 1
    file = owner.get(build_address(table="differences", format="csv")).content.decode()
    assert {"p", "p_holm", "mean_a", "mean_b", "effect"} <= set(file.splitlines()[0].lstrip("\ufeff").split(","))


@pytest.mark.slow
def test_flagged_items_are_excluded_on_request_and_outdate_the_tables(owner, study):
    compute_and_open(owner)
    item = study.dataset.items.first()
    Annotation.objects.create(item=item, kind="flag", text="The target is wrong.", author=study.owner)
    assert not owner.get(build_address()).context["cached"].is_fresh, "robustness counts without flagged items"
    page = compute_and_open(owner, exclude="flagged")
    (table,) = [one["table"] for one in page.context["sections"][0]["tables"] if one["table"].name == "descriptives"]
    assert [row["items"] for row in table.rows] == [11, 11]
    choices = compute_and_open(owner).context["sections"]
    variants = [
        row["variant"] for one in choices for table in one["tables"] for row in table["table"].rows if "variant" in row
    ]
    assert "Without flagged items" in variants
