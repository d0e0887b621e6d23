"""From trial to trial by single keys: through the list that was filtered, and through the trials of one item."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests import factories


@pytest.fixture
def trials(owner):
    models = [factories.make_model("first"), factories.make_model("second")]
    experiment = factories.make_experiment("keys", owner=owner, models=models, samples=2)
    return [
        trial
        for run in factories.make_runs(experiment, status="done")
        for trial in factories.plan_trials(run, answer=lambda item, _, index: "word " * 400)
    ]


def at(page, trial):
    expect(page).to_have_url(re.compile(rf"/trials/{trial.pk}/\?status=done$"))


def test_keys_move_through_the_list_and_through_one_item(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    for key, trial in (("j", trials[1]), ("ArrowRight", trials[2]), ("k", trials[1]), ("ArrowLeft", trials[0])):
        page.keyboard.press(key)
        at(page, trial)
    same = [trial for trial in trials if trial.item_id == trials[0].item_id]
    for key, trial in (("]", same[1]), ("]", same[2]), ("[", same[1]), ("[", same[0])):
        page.keyboard.press(key)
        at(page, trial)
    page.keyboard.press("k")
    page.keyboard.press("[")
    at(page, trials[0])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("On a trial: next, previous of the same item under that filter")


def leads_away(page, key):
    """Whether this key begins to leave the page: the browser says so at once, and stays for this check."""
    page.evaluate("""() => {
        window.leaves = false;
        navigation.onnavigate = event => { window.leaves = true; event.preventDefault(); };
    }""")
    page.keyboard.press(key)
    return page.evaluate("window.leaves")


def test_shortcuts_are_inactive_in_an_open_dialog_and_when_turned_off(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    assert leads_away(page, "j")
    assert leads_away(page, "]")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert not leads_away(page, "j")
    page.get_by_label("Use single-key shortcuts in this browser").uncheck()
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    assert not leads_away(page, "j")
    assert not leads_away(page, "]")
    at(page, trials[0])


def test_shortcuts_are_inactive_while_typing(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_list") + "?status=done")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<a id=jump data-keys=\"j\" href=\"/\">x</a>')"
    )
    field = page.get_by_label("Item key")
    field.click()
    field.press_sequentially("j]k[")
    expect(field).to_have_value("j]k[")
    expect(page).to_have_url(re.compile(r"/trials/"))


def test_links_work_without_scripts(trials, owner, visitor):
    page = visitor(owner, java_script_enabled=False)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    page.get_by_role("link", name="Next", exact=True).click()
    at(page, trials[1])
    page.get_by_role("link", name="Next of this item").click()
    expect(page.get_by_role("link", name="Previous of this item")).to_be_visible()
