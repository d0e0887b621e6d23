"""The style guide in a real browser: accessible, within its width, quiet in the console, usable from the keyboard."""

import pytest
from playwright.sync_api import expect

from tests.system.browser.page_checks import LAPTOP, PHONE, check_views, collect_complaints, settle

pytestmark = pytest.mark.urls("tests.integration.styleguide.urls")


@pytest.fixture
def visit(chromium, live_server):
    """Return a function that opens the style guide. Errors and warnings of the console fail the test."""
    complaints, contexts = [], []

    def open_guide(viewport=LAPTOP, **options):
        context = chromium.new_context(viewport=viewport, base_url=live_server.url, **options)
        contexts.append(context)
        page = context.new_page()
        collect_complaints(page, complaints)
        page.goto("/guide/")
        return page

    yield open_guide
    for context in contexts:
        context.close()
    assert complaints == []


def test_the_page_is_accessible_and_never_wider_than_the_window(visit, request):
    check_views(visit(reduced_motion="reduce"), "style guide", request.config.getoption("--screenshot"))


def test_the_theme_is_stored_and_applied_before_the_first_paint(visit):
    page = visit(color_scheme="light")
    light = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    button = page.locator("[data-theme-toggle]")
    button.click()
    button.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("body")).not_to_have_css("background-color", light)
    page.reload(wait_until="commit")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_times_use_the_browsers_time_zone_from_the_second_page(visit):
    page = visit(timezone_id="Asia/Tokyo")
    page.reload()
    expect(page.locator("footer")).to_contain_text("Times in Asia/Tokyo")
    expect(page.locator("time").first).to_have_text("2025-03-14 18:26")


def test_keys_move_between_rows_focus_the_filter_and_show_help(visit):
    page = visit()
    links = page.locator("[data-rows] tbody tr a")
    for key, row in [("j", 0), ("j", 1), ("j", 2), ("k", 1)]:
        page.keyboard.press(key)
        expect(links.nth(row)).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("input[name=q]")).to_be_focused()
    page.keyboard.type("j?")
    expect(page.locator("input[name=q]")).to_have_value("j?")
    page.locator("input[name=q]").blur()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.get_by_label("Use single-key shortcuts in this browser").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_a_destructive_form_asks_for_confirmation(visit):
    page = visit()
    page.evaluate("document.querySelector('[data-confirm]').action = '/guide/'")
    page.get_by_role("button", name="Delete draft").click()
    dialog = page.get_by_role("dialog", name="Delete this draft?")
    expect(dialog).to_contain_text("Its 40 items are deleted too.")
    dialog.get_by_role("button", name="Back").click()
    expect(dialog).to_be_hidden()
    assert page.url.endswith("/guide/")
    page.get_by_role("button", name="Delete draft").click()
    dialog.get_by_role("button", name="Delete draft").click()
    expect(page.locator("body")).to_have_text("posted")


def test_a_select_filters_immediately_and_omits_empty_fields_from_the_url(visit):
    page = visit()
    page.select_option("select[name=status]", "done")
    page.wait_for_url("**/guide/?status=done")


def test_a_toast_shows_markup_as_text(visit):
    page = visit()
    page.evaluate("document.dispatchEvent(new CustomEvent('toast', {detail: {text: '<b>Paused</b>', tone: 'good'}}))")
    expect(page.get_by_role("status").filter(has_text="<b>Paused</b>")).to_be_visible()


def test_filters_are_folded_on_a_phone_and_open_on_a_laptop(visit):
    expect(visit(LAPTOP).locator("input[name=q]")).to_be_visible()
    phone = visit(PHONE)
    expect(phone.locator("input[name=q]")).to_be_hidden()
    phone.locator(".filters summary").click()
    expect(phone.locator("input[name=q]")).to_be_visible()


def test_table_headers_stick_to_the_window(visit):
    page = visit({"width": 1280, "height": 400}, reduced_motion="reduce")
    page.locator("[data-rows] tbody tr").nth(2).evaluate("row => window.scrollTo(0, row.offsetTop + 700)")
    settle(page)
    top = page.locator("[data-rows] thead th").first.evaluate("head => head.getBoundingClientRect().top")
    row = page.locator("[data-rows] tbody tr").first.evaluate("row => row.getBoundingClientRect().top")
    assert top >= 0
    assert row < top + 40


def test_all_content_is_available_without_scripts(visit):
    page = visit(java_script_enabled=False, color_scheme="dark")
    page.locator("summary", has_text="Pause").click()
    expect(page.get_by_text("No new calls start.")).to_be_visible()
    expect(page.locator("[data-theme-toggle]")).to_be_hidden()
    page.select_option("select[name=status]", "done")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**status=done**")
