"""The report, its figures and its share links in a browser, from the author to a reader without an account."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from grading_app.models import CachedAggregate, ShareLink
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.report.build import get_report
from grading_app.tasks import compute_aggregates
from tests.factories.studies import make_rated_study
from tests.system.browser.page_checks import LAPTOP, settle


@pytest.fixture
def study(owner):
    experiment = make_rated_study("study", owner=owner, title="How pleasant are these photographs?")
    get_report(experiment)
    FigureSource(experiment).list_figures()
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
    return experiment


def test_report_and_link_pages_look_right(study, owner, visitor, checked_in_all_views):
    page = visitor(owner)
    for name in ("experiment_report", "report_edit", "share_links", "experiment_figures"):
        assert page.goto(reverse(name, args=["study"])).ok
        page.wait_for_load_state("networkidle")
        checked_in_all_views(page, f"report-{name}")


def test_shared_pages_look_right_without_an_account(study, visitor, checked_in_all_views):
    _, token = ShareLink.create(study, "experiment", timezone.now() + timedelta(days=7), by=study.owner)
    page = visitor()
    for name in ("shared", "shared_design", "shared_leaderboard", "shared_report", "shared_figures"):
        assert page.goto(reverse(name, args=[token])).ok
        page.wait_for_load_state("networkidle")
        checked_in_all_views(page, f"shared-{name}")


def test_a_report_with_norms_is_short_on_a_laptop_and_whole_on_paper(study, owner, visitor):
    page = visitor(owner, LAPTOP)
    page.goto(reverse("experiment_report", args=["study"]))
    settle(page)
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    tables = page.locator(".report-text table")
    count_shown = "tables => tables.filter(table => table.checkVisibility({contentVisibilityAuto: true})).length"
    assert tables.evaluate_all(count_shown) == 1, "the scores; others are folded"
    page.emulate_media(media="print")
    assert tables.count() > 10
    page.wait_for_function(
        f"n => ({count_shown})([...document.querySelectorAll('.report-text table')]) === n", arg=tables.count()
    )


def test_a_report_is_readable_on_a_phone_in_the_dark_theme(study, visitor):
    _, token = ShareLink.create(study, "report", timezone.now() + timedelta(days=7), by=study.owner)
    page = visitor()
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    page.goto(reverse("shared_report", args=[token]))
    figure = page.locator(".figure-card img").first
    assert figure.evaluate("one => getComputedStyle(one).backgroundColor") == "rgba(0, 0, 0, 0)", "light text on white"
    table = page.locator(".report-table").first
    assert table.evaluate("one => getComputedStyle(one).display") == "table"
    assert table.locator("td").first.evaluate("one => getComputedStyle(one).display") == "table-cell"


def test_an_author_edits_a_report_shares_it_and_revokes_the_link(study, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("experiment_report", args=["study"]))
    page.get_by_role("link", name="Edit sections and text").click()
    page.get_by_label("Text before “Results”").fill("We expected **b** to rate higher.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#text-results strong")).to_have_text("b")
    page.get_by_role("link", name="Share by link").click()
    page.get_by_role("button", name="Create link").click()
    address = page.locator(".share-address").input_value()
    reader = visitor()
    reader.goto(address)
    expect(reader.locator("#text-results strong")).to_have_text("b")
    expect(reader.get_by_role("link", name="Edit sections and text")).to_have_count(0)
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("The link is revoked.")).to_be_visible()
    assert reader.request.get(address).status == 404
