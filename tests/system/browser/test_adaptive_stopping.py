"""A design with adaptive stopping, from the form to the estimate of each point."""

import re
from decimal import Decimal

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from runs_app import run_control
from runs_app.models import Experiment, Run
from tests import factories
from tests.factories.engine import build_reply
from tests.system.browser.page_checks import PHONE, drain_in_thread

SKILLS = {"spatial": 20, "temporal": 15, "causal": 10, "negation": 5}  # Correct answers per twenty questions.


@pytest.fixture
def design(transactional_db):
    """Four categories with a hundred questions each, of four choices; two models."""
    team = factories.make_team()
    items = [
        {
            "key": f"{category}-{number}",
            "input": f"{category} question {number}",
            "target": "north",
            "choices": ["north", "south", "east", "west"],
            "category": category,
        }
        for number in range(100)
        for category in SKILLS
    ]
    return factories.make_experiment(
        "reasoning-map",
        owner=team.owner,
        dataset=factories.make_dataset("compass", items),
        models=[factories.make_model(name, max_output_tokens=50) for name in ("sim-large", "sim-small")],
        max_usd=Decimal(20),
        cache=False,
    )


def answer_everything():
    async def call(request):
        category, _, number = request.messages[-1]["content"].split()
        n_right = SKILLS[category] - (3 if "small" in request.model else 0)
        text = "north" if int(number) * 7 % 20 < n_right else "south"
        return build_reply(text, cost_usd=Decimal("0.0004"))

    drain_in_thread(call)


def test_a_researcher_sets_adaptive_stopping_and_reads_the_estimates(design, visitor, checked):
    page = visitor(design.owner)
    page.goto(reverse("experiment_edit", args=[design.slug]))
    page.get_by_text("Adaptive stopping").click()
    page.get_by_label("Points by").fill("category")
    page.locator("[name=adaptive-scorer]").select_option("exact_match")
    page.get_by_label("Target half-width").fill("0.13")
    page.locator("[name=adaptive-round]").fill("16")
    page.locator("[name=adaptive-max]").fill("96")
    page.get_by_role("button", name="Save draft").click()
    page.get_by_role("heading", name="Points").wait_for()
    assert Experiment.objects.get().adaptive["targetci"] == 0.13
    page.get_by_text("Each point runs in rounds of 16 cases, up to 96 cases").first.wait_for()

    run_control.launch(Experiment.objects.get(), by=design.owner)
    answer_everything()
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}

    page.get_by_role("navigation", name="Experiment").get_by_role("link", name="Results").click()
    page.get_by_role("navigation", name="Results").get_by_role("link", name="Points").click()
    page.get_by_text("Decided", exact=True).wait_for()
    page.get_by_text("8 of 8 points").wait_for()
    page.locator(".data-table .point-reason > summary").first.click()
    page.locator(".data-table").get_by_text("within ±0.13").first.wait_for()
    page.get_by_label("Status").get_by_role("link").nth(1).click()
    expect(page).to_have_url(re.compile("status="))


def test_the_point_pages_look_right(design, visitor, checked_in_all_views):
    rule = {"by": "category", "scorer": "exact_match", "targetci": 0.13, "round": 16, "max": 96}
    Experiment.objects.update(adaptive=rule, scorers=["exact_match"])
    run_control.launch(Experiment.objects.get(), by=design.owner)
    answer_everything()
    page = visitor(design.owner)
    for name, address in {
        "points": reverse("experiment_points", args=[design.slug]),
        "points design": reverse("experiment_detail", args=[design.slug]),
    }.items():
        page.goto(address)
        checked_in_all_views(page, name)


def test_the_adaptive_stopping_section_of_the_form_looks_right_on_a_phone(design, visitor, checked):
    Experiment.objects.update(adaptive={"by": "category", "scorer": "exact_match", "targetci": 0.13})
    page = visitor(design.owner, PHONE)
    page.goto(reverse("experiment_edit", args=[design.slug]))
    page.get_by_label("Target half-width").wait_for()
    checked(page, "points form")
