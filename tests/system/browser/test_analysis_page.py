"""The analysis in a browser: every section, hidden and revealed model names, and an excluded outlier."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.models import CachedAggregate
from grading_app.tasks import compute_aggregates
from tests import factories


@pytest.fixture
def study(owner, monkeypatch):
    """Two models x two prompts rate 24 pictures of two categories; picture-3 is rated far from its norm."""
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    items = [
        {"key": f"picture-{n}", "category": ("animals", "objects")[n % 2], "norms": {"valence": 1 + n % 6}}
        for n in range(24)
    ]
    experiment = factories.make_experiment(
        "affect",
        owner=owner,
        dataset=factories.make_dataset("pictures", items),
        models=[factories.make_model("grampus"), factories.make_model("narwhal")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
        dimensions=[factories.make_dimension("valence")],
        samples=2,
    )
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(
            run, answer=lambda item, _, index, number=number: make_rating(item.position, index, number)
        )
    return experiment


def make_rating(position, index, number):
    rating = (
        7
        if position == 3
        else max(1, min(7, 1 + position % 6 + (number // 2) + ((position + index + number) % 4 == 0)))
    )
    return {"answer": str(rating), "rating": rating}


def compute_pending_aggregates(page):
    """Compute pending aggregates like a worker, in a thread because of playwright's loop. Then reload the page."""

    def work():
        try:
            compute_aggregates(list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    page.reload()


def open_all_sections(page):
    """Open the sections that are folded below the answers, and the tests that each of them folds."""
    for summary in page.locator("#main details:not(.filters) > summary").all():
        summary.click()


# The tables that are wider than the box that scrolls them, with both widths.
WIDE_TABLES = """() => [...document.querySelectorAll('#main table')]
    .map(table => [table.closest('[id]').id, table.scrollWidth, table.parentElement.clientWidth])
    .filter(([, table, box]) => table > box)"""


def test_the_tables_of_all_sections_fit_a_laptop(study, visitor):
    page = visitor(study.owner)
    page.goto(reverse("experiment_analysis", args=[study.slug]))
    compute_pending_aggregates(page)
    open_all_sections(page)
    expect(page.locator("#table-all_tests")).to_be_visible()
    expect(page.locator("#table-norm_differences")).to_be_visible()
    assert page.evaluate(WIDE_TABLES) == []


def test_the_sentence_of_each_answer_stands_beside_its_figure_in_full_size(study, visitor):
    page = visitor(study.owner)
    page.goto(reverse("experiment_analysis", args=[study.slug]))
    compute_pending_aggregates(page)
    answers = page.locator(".answer-grid:has(figure)")
    assert answers.count() == 3
    for answer in answers.all():
        sentence, figure = (answer.locator(part).bounding_box() for part in (".conclusion", "figure"))
        picture = answer.locator("figure img").evaluate("image => [image.clientWidth, image.getAttribute('width')]")
        assert sentence["x"] + sentence["width"] < figure["x"]
        assert abs(sentence["y"] - figure["y"]) < 10
        assert figure["width"] < 600, "an empty card around a small figure"
        assert picture[0] >= int(picture[1])


def test_the_analysis_looks_right_and_hides_names_until_they_are_revealed(study, visitor, checked_in_all_views):
    page = visitor(study.owner)
    page.goto(reverse("experiment_analysis", args=[study.slug]))
    compute_pending_aggregates(page)
    open_all_sections(page)
    expect(page.get_by_role("heading", name="Effects of model, prompt and sampler")).to_be_visible()
    expect(page.locator("#figure-analysis-category-map")).to_be_visible()
    expect(page.locator("#figure-analysis-norm-regression")).to_be_visible()
    expect(page.locator("#figure-analysis-residuals")).to_be_visible()
    expect(page.locator("#figure-analysis-groups")).to_be_visible()
    page.get_by_role("button", name="Hide model names").click()
    compute_pending_aggregates(page)
    expect(page.get_by_text("Model names have been hidden from you since")).to_be_visible()
    open_all_sections(page)
    expect(page.locator("#table-factors")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("grampus")
    expect(page.locator("body")).to_contain_text("Model A")
    checked_in_all_views(page, "analysis-blind")
    tabs = page.get_by_role("navigation", name="Experiment")
    tabs.get_by_role("link", name="Answers").click()
    page.get_by_role("navigation", name="Answers").get_by_role("link", name="Trials").click()
    expect(page.get_by_text("This page shows the names of models. Reveal them first.")).to_be_visible()
    checked_in_all_views(page, "names-hidden")
    tabs.get_by_role("link", name="Results").click()
    page.get_by_role("navigation", name="Results").get_by_role("link", name="Analysis").click()
    page.get_by_role("link", name="Analyse without picture-3").click()
    compute_pending_aggregates(page)
    expect(page.get_by_text("Sensitivity view: 1 item left out (picture-3).")).to_be_visible()
    page.get_by_role("button", name="Reveal model names").click()
    compute_pending_aggregates(page)
    expect(page.locator("#table-descriptives")).to_contain_text("grampus")
    expect(page.locator(".blind-record")).to_contain_text("revealed")
