"""Single keys move from trial to trial: through the filtered list and through the trials of one item."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests import factories
from tests.system.browser.page_checks import press_and_wait


@pytest.fixture
def trials(owner):
    models = [factories.make_model("first"), factories.make_model("second")]
    experiment = factories.make_experiment("keys", owner=owner, models=models, samples=2)
    return [
        trial
        for run in factories.make_runs(experiment, status="done")
        for trial in factories.plan_trials(run, answer=lambda item, _, index: "word " * 400)
    ]


def expect_trial(page, trial):
    expect(page).to_have_url(re.compile(rf"/trials/{trial.pk}/\?status=done$"))


def test_keys_move_through_the_list_and_through_one_item(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    for key, trial in (("j", trials[1]), ("ArrowRight", trials[2]), ("k", trials[1]), ("ArrowLeft", trials[0])):
        press_and_wait(page, key)
        expect_trial(page, trial)
    trials_of_item = [trial for trial in trials if trial.item_id == trials[0].item_id]
    for key, trial in (
        ("]", trials_of_item[1]),
        ("]", trials_of_item[2]),
        ("[", trials_of_item[1]),
        ("[", trials_of_item[0]),
    ):
        press_and_wait(page, key)
        expect_trial(page, trial)
    page.keyboard.press("k")
    page.keyboard.press("[")
    expect_trial(page, trials[0])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("On a trial: next, previous of the same item under that filter")


def starts_navigation(page, key):
    """Return whether the key starts a navigation. The navigation is cancelled."""
    page.evaluate("""() => {
        window.leaves = false;
        navigation.onnavigate = event => { window.leaves = true; event.preventDefault(); };
    }""")
    page.keyboard.press(key)
    return page.evaluate("window.leaves")


def test_shortcuts_are_inactive_in_an_open_dialog_and_when_turned_off(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    assert starts_navigation(page, "j")
    assert starts_navigation(page, "]")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert not starts_navigation(page, "j")
    page.get_by_label("Use single-key shortcuts in this browser").uncheck()
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    assert not starts_navigation(page, "j")
    assert not starts_navigation(page, "]")
    expect_trial(page, trials[0])


def test_shortcuts_are_inactive_while_typing(trials, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_list") + "?status=done")
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<a id=jump data-keys=\"j\" href=\"/\">x</a>')"
    )
    page.get_by_text("More filters").click()
    field = page.get_by_label("Item key")
    field.click()
    field.press_sequentially("j]k[")
    expect(field).to_have_value("j]k[")
    expect(page).to_have_url(re.compile(r"/trials/"))


def test_links_work_without_scripts(trials, owner, visitor):
    page = visitor(owner, java_script_enabled=False)
    page.goto(reverse("trial_detail", args=[trials[0].pk]) + "?status=done")
    page.get_by_role("link", name="Next", exact=True).click()
    expect_trial(page, trials[1])
    page.get_by_role("link", name="Next of this item").click()
    expect(page.get_by_role("link", name="Previous of this item")).to_be_visible()
