"""A finished experiment is extended in a browser: choose parts, check the cost, confirm and launch."""

from decimal import Decimal

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from runs_app import run_control
from runs_app.models import Attempt, Experiment, Run, Trial
from tests import factories
from tests.factories.engine import build_provider
from tests.system.browser.page_checks import drain_in_thread


@pytest.fixture
def finished(owner):
    """Three items answered twice by one model, and another model and prompt to add."""
    experiment = factories.make_experiment(
        "capitals",
        owner=owner,
        models=[factories.make_model("small", max_output_tokens=100)],
        samples=2,
        confirm_above_usd=Decimal("0.0001"),
        max_usd=Decimal(5),
        cache=False,
    )
    factories.make_model("large", max_output_tokens=100)
    factories.make_prompt("terse", user="In one word: {{input}}")
    run_control.launch(experiment, by=owner)
    drain_in_thread(build_provider("Paris", cost_usd=Decimal("0.001")))
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}
    return experiment


def test_extending_a_finished_experiment_calls_only_the_added_model(finished, owner, visitor):
    page = visitor(owner)
    page.goto(finished.get_absolute_url())
    page.get_by_role("link", name="Extend design").click()
    expect(page.get_by_role("heading", name="Extend capitals")).to_be_visible()
    expect(page.get_by_role("button", name="Extend and launch")).to_have_count(0)
    page.wait_for_load_state("load")
    page.get_by_label("large").check()
    panel = page.locator("#extension-preview")
    expect(panel).to_contain_text("New trials6")
    page.get_by_label("Samples").fill("3")
    page.get_by_label("Samples").blur()
    expect(panel).to_contain_text("New trials12")
    page.get_by_label("Reason").fill("Is the large one better?")
    page.get_by_role("button", name="Extend and launch").click()
    expect(page.get_by_role("alert")).to_contain_text("Confirm the maximum cost")
    page.get_by_label("I accept the maximum cost").check()
    expect(page.get_by_label("Reason")).to_have_value("Is the large one better?")
    page.get_by_role("button", name="Extend and launch").click()
    expect(page.get_by_text("Extended: 12 new trials, 18 in all, in 2 runs.")).to_be_visible()
    assert Trial.objects.filter(status="done").count() == 6

    drain_in_thread(build_provider("Rome", cost_usd=Decimal("0.001")))
    assert Attempt.objects.count() == 18
    assert Trial.objects.filter(answer="Paris").count() == 6
    assert Experiment.objects.get().spent_usd == Decimal("0.018")
    page.goto(finished.get_absolute_url())
    expect(page.get_by_role("row", name="Is the large one better?").first).to_be_visible()


def test_the_extend_page_works_without_a_script(finished, owner, visitor):
    page = visitor(owner, java_script_enabled=False)
    page.goto(reverse("experiment_extend", args=["capitals"]))
    page.get_by_label("terse").check()
    page.get_by_role("button", name="Show new trials and cost").last.click()
    expect(page.locator("#extension-preview")).to_contain_text("6")
    page.get_by_label("I accept the maximum cost").check()
    page.get_by_role("button", name="Extend and launch").click()
    expect(page.get_by_text("Extended: 6 new trials, 12 in all, in 2 runs.")).to_be_visible()


def test_the_extend_page_looks_right_in_all_views(finished, owner, visitor, checked_in_all_views):
    page = visitor(owner)
    page.goto(reverse("experiment_extend", args=["capitals"]))
    page.wait_for_load_state("load")
    page.get_by_label("large").check()
    expect(page.locator("#extension-preview")).to_contain_text("New trials6")
    checked_in_all_views(page, "experiment-extend")
