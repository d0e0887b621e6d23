"""The library in a browser: its pages, its editor, and the dialog from which a design comes back with a new prompt."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from evalsite.lib import permissions
from runs_app.models import Experiment, Prompt
from tests import factories
from tests.factories.drafts import make_question_prompt
from tests.factories.judges import make_grader

EVERY_FINDING = """() => axe.run({preload: false, resultTypes: ['violations']})
    .then(found => found.violations.map(fault => [fault.id, fault.impact, fault.nodes[0].target]))"""


@pytest.fixture
def curator(transactional_db):
    return factories.make_user("curator", permissions.CURATOR)


@pytest.fixture
def parts(transactional_db):
    rows = [{"key": "q1", "input": "Capital of France?", "target": "Paris", "metadata": {"hint": "Rivers"}}]
    factories.make_dataset("capitals", rows)
    factories.make_model("small")
    factories.make_sampler("short", max_tokens=100)
    factories.make_dimension("warmth")
    make_question_prompt("plain")
    make_question_prompt("plain", version=2, status="draft", messages=[{"role": "user", "content": "{{key}}"}])


def check_everything(page, checked_in_all_views, name):
    """Check the page in all views, and that axe finds nothing of any impact on it."""
    checked_in_all_views(page, name)
    assert page.evaluate(EVERY_FINDING) == []


def test_the_pages_of_the_library_look_right(parts, curator, visitor, checked_in_all_views):
    make_grader("strict")
    page = visitor(curator)
    addresses = {
        "prompts": reverse("library_list", args=["prompts"]),
        "samplers": reverse("library_list", args=["samplers"]),
        "prompt": reverse("library_page", args=["prompts", "plain"]) + "?version=2",
        "new prompt": reverse("library_new", args=["prompts"]),
        "new dimension": reverse("library_new", args=["dimensions"]),
        "new rubric": reverse("library_new", args=["rubrics"]),
        "judges": reverse("judge_list"),
        "judge": reverse("judge_page", args=["strict"]),
        "new judge": reverse("judge_new"),
        "new experiment": reverse("experiment_new"),
    }
    for name, address in addresses.items():
        assert page.goto(address).ok, address
        check_everything(page, checked_in_all_views, f"library, {name}")


def test_the_link_to_a_new_prompt_keeps_its_focus_when_the_choices_of_a_dataset_arrive(parts, owner, visitor):
    page = visitor(owner)
    page.goto("/experiments/new/")
    held = []
    page.route("**/experiments/new/choices/prompts/", lambda route: held.append(route))
    with page.expect_request("**/experiments/new/choices/prompts/"):
        page.locator("[name=dataset]").select_option(label="capitals@1")
    link = page.get_by_role("link", name="New prompt…")
    before = link.get_attribute("href")
    link.focus()
    with page.expect_response("**/experiments/new/choices/prompts/"):
        held[0].continue_()
    expect(link).not_to_have_attribute("href", before)
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="New prompt")).to_be_visible()


def test_a_link_to_a_new_prompt_opens_its_dialog_as_soon_as_it_is_on_the_page(parts, owner, visitor):
    page = visitor(owner)
    # A busy browser runs timers late. A link that is a plain link until then would leave the form.
    page.add_init_script("const later = setTimeout; window.setTimeout = (call, ms) => later(call, 4000 + ms);")
    page.goto("/experiments/new/")
    page.locator("[name=dataset]").select_option(label="capitals@1")
    link = page.get_by_role("link", name="New prompt…")
    expect(link).to_have_attribute("href", re.compile("dataset="))
    link.press("Enter")
    expect(page.get_by_role("dialog", name="New prompt")).to_be_visible()


def test_a_prompt_is_made_in_the_dialog_by_keyboard_alone_and_comes_back_ticked(parts, owner, visitor, checked):
    page = visitor(owner)
    page.goto("/experiments/new/")
    page.get_by_label("Name", exact=True).fill("by-keys")
    page.locator("[name=dataset]").select_option(label="capitals@1")
    page.get_by_label("plain@1").focus()
    page.keyboard.press("Space")
    page.get_by_role("link", name="New prompt…").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="New prompt")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Name")).to_be_focused()
    page.keyboard.type("Not A Name")
    page.keyboard.press("Tab")
    expect(dialog.get_by_label("Message")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("Answer in one word.\n{{inptu}}")
    expect(dialog.get_by_text("Turn 1, line 2: unknown variable {{inptu}}.")).to_be_visible()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("small letters")
    expect(dialog.get_by_label("Message")).to_have_value(re.compile(r"one word\.\n\{\{inptu\}\}"))
    checked(page, "editor in a dialog, with errors")
    dialog.get_by_label("Name").fill("one-word")
    dialog.get_by_label("Message").fill("Answer in one word. ")
    page.locator("[name=item]").focus()
    dialog.get_by_role("button", name="{{input}}").focus()
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Message")).to_have_value("Answer in one word. {{input}}")
    expect(dialog.get_by_text("Answer in one word. Capital of France?")).to_be_visible()
    dialog.get_by_role("button", name="Save draft").focus()
    page.keyboard.press("Enter")
    expect(dialog).not_to_be_visible()
    expect(page.get_by_label("one-word@1, draft")).to_be_checked()
    expect(page.get_by_label("plain@1")).to_be_checked()
    expect(page.get_by_label("Name", exact=True)).to_have_value("by-keys")
    expect(page.locator("#design-summary-area")).to_contain_text("Example request")
    page.locator("[name=language_models]").check()
    page.locator("[name=samplers]").check()
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_role("heading", name="by-keys")).to_be_visible()
    prompts = Experiment.objects.get().prompts.order_by("name").values_list("name", flat=True)
    assert list(prompts) == ["one-word", "plain"]


def test_escape_closes_the_dialog_and_returns_to_its_link(parts, owner, visitor):
    page = visitor(owner)
    page.goto("/experiments/new/")
    page.get_by_role("link", name="New sampler…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="New sampler")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="New sampler")).not_to_be_visible()
    expect(page.get_by_role("link", name="New sampler…")).to_be_focused()


def test_without_a_script_the_editor_is_a_page_with_a_way_back(parts, owner, visitor, live_server):
    page = visitor(owner, java_script_enabled=False)
    page.goto("/experiments/new/")
    page.get_by_role("link", name="New prompt…").click()
    page.get_by_label("Name").fill("scriptless")
    page.locator("[name=user]").fill("Say it: {{input}}")
    page.locator("[name=dataset]").select_option(label="capitals@1")
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    expect(page.get_by_label("scriptless@1, draft")).to_be_checked()
    assert Prompt.objects.get(name="scriptless").created_by == owner
