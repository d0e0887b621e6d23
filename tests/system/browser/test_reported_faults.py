"""Regression tests of faults that users reported, on a running site in a browser.

Each test has its own experiment on the same site. The worker and the provider are real processes.
"""

import re
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.system.browser.conftest import PATIENCE_MS
from tests.system.browser.live_site import DESIGN, ITEMS, add_users_and_designs, kill_workers, run_live_site, sign_in
from tests.system.browser.page_checks import keep_screenshot, press_and_wait, settle

pytestmark = pytest.mark.processes

PILOT = 20
PHONE_WIDTH = 390
# Collects every text that the page showed, also between two polls.
RECORD_TEXTS = """() => {
    window.shown = [document.body.innerText];
    new MutationObserver(() => window.shown.push(document.body.innerText))
        .observe(document.body, {childList: true, subtree: true, characterData: true});
}"""


@pytest.fixture(scope="module", autouse=True)
def patience():
    """Wait longer for changes of a page than other tests, because real processes answer on a busy machine."""
    expect.set_options(timeout=4 * PATIENCE_MS)
    yield
    expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def empty_site(prepared, chromium):
    with run_live_site(prepared, chromium) as live_site:
        yield live_site


@pytest.fixture(scope="module")
def command_without_users(empty_site):
    """The output of `experiment create` on a site without users."""
    file = empty_site.site.place / "any.yaml"
    file.write_text(DESIGN.format(name="any", more=""))
    return empty_site.run(f'manage experiment create "{file}"')


@pytest.fixture(scope="module")
def live_site(empty_site, command_without_users):
    add_users_and_designs(empty_site)
    return empty_site


@pytest.fixture(autouse=True)
def quiet_console(live_site):
    live_site.complaints.clear()
    yield
    assert live_site.complaints == []


@pytest.fixture
def check_widths(request):
    """Return `check_widths(page, name)`, which asserts that the page does not scroll sideways at either width."""
    keep = request.config.getoption("--screenshot") == "on"

    def check_both_widths(page, name):
        size = page.viewport_size
        for width in (1280, PHONE_WIDTH):
            page.set_viewport_size({"width": width, "height": 800})
            settle(page)
            if keep:
                keep_screenshot(page, f"walk-{name}-{width}")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (name, width)
        page.set_viewport_size(size)

    return check_both_widths


@contextmanager
def open_progress(live_site, name, person="researcher"):
    with live_site.visit(person) as page:
        page.goto(f"/experiments/{name}/progress/")
        yield page


def press_action(page, label, reason=""):
    page.locator("summary", has_text=label).first.click()
    form = page.locator("details.action[open]")
    if reason:
        form.get_by_label("Reason").fill(reason)
    form.get_by_role("button").click()


def test_19_a_site_without_users_says_how_to_create_one(command_without_users):
    process = command_without_users
    assert process.returncode == 2
    assert "createsuperuser" in process.stderr
    assert "Traceback" not in process.stderr


def test_14_and_17_a_prompt_is_created_from_the_form_and_names_its_variables(live_site, check_widths):
    with live_site.visit("researcher") as page:
        page.goto("/experiments/new/")
        for kind in ("prompt", "sampler", "dimension"):
            expect(page.locator("a", has_text=f"New {kind}…")).to_have_count(1)
        check_widths(page, "new-experiment")
        # 3: the linked page does not require a staff account.
        page.goto("/library/new/prompts/")
        page.get_by_label("Name").fill("typo")
        page.get_by_label("Message").fill("Answer {{inptu}} please.")
        page.get_by_role("button", name="Save draft").click()
        error = page.locator(".errorlist").last
        expect(error).to_contain_text("{{inptu}}")
        for name in ("{{input}}", "{{choices}}", "{{dimension}}"):
            expect(error).to_contain_text(name)
        expect(page.get_by_label("Message")).to_have_value("Answer {{inptu}} please.")
        check_widths(page, "prompt-with-unknown-variable")
        page.get_by_label("Message").fill("Answer {{input}} please.")
        page.get_by_role("button", name="Save draft").click()
        expect(page.get_by_text("typo@1 is saved as a draft.")).to_be_visible()


@pytest.mark.parametrize("person", ["viewer", "researcher", "operator"])
def test_2_and_3_every_entry_of_a_menu_opens(live_site, check_widths, person):
    with live_site.visit(person) as page:
        entries = page.locator("nav.mainnav a")
        names = entries.all_inner_texts()
        assert ("Library" in names) == (person != "viewer")
        assert len(names) <= 6
        assert ("Admin" in names) == (person != "viewer")
        for name in names:
            with page.expect_navigation() as navigation:
                page.locator("nav.mainnav").get_by_role("link", name=name).click()
            assert navigation.value.status == 200, name
            if name == "Admin":
                page.goto("/")
        check_widths(page, f"menu-{person}")


def test_12_13_and_18_an_import_keeps_the_file_line_breaks_and_the_rest_of_a_column(live_site, check_widths):
    long_cell = " ".join(f"word{number}" for number in range(120))
    table = f"""id,question,answer
q1,"One?
Second line of the question",Half of 4 is 2. #### 2
q2,{long_cell},Easy. #### 7
"""
    file = {"name": "My Questions.csv", "mimeType": "text/csv", "buffer": table.encode()}
    with live_site.visit("researcher") as page:
        page.goto("/datasets/new/")
        page.get_by_label("Items").set_input_files(file)
        page.get_by_label("Name").fill("???")
        page.get_by_role("button", name="Upload and map columns").click()
        expect(page.get_by_role("alert")).to_contain_text("Use at least one letter")
        expect(page.get_by_text("Already uploaded: My Questions.csv")).to_be_visible()
        check_widths(page, "import-with-a-wrong-name")
        page.get_by_label("Name").fill("My First Questions")
        page.get_by_role("button", name="Upload and map columns").click()
        expect(page.get_by_role("heading", name="First rows")).to_be_visible()
        expect(page.get_by_role("heading", name="Import my-first-questions")).to_be_visible()
        expect(page.locator(".preview-whole", has_text="Second line of the question")).to_be_visible()
        fold = page.locator(".preview-start").first
        assert shows_whole_lines(fold)
        page.locator(".preview-fold summary").first.click()
        expect(page.locator(".preview-all").first).to_contain_text("word119")
        check_widths(page, "import-mapping")
        page.get_by_label("Target: Or an expression").fill("{answer|after:####}")
        page.get_by_role("button", name="Import items").click()
        expect(page.get_by_text("my-first-questions@1 is a draft of 2 items.")).to_be_visible()
        page.get_by_role("link", name="q1").first.click()
        expect(page.locator("main")).to_contain_text("Half of 4 is 2. #### 2")
        check_widths(page, "imported-item")


def shows_whole_lines(box):
    """Return whether the height of a clamped text is a whole number of lines."""
    return box.evaluate("""element => {
        const lines = element.clientHeight / parseFloat(getComputedStyle(element).lineHeight);
        return lines >= 1 && Math.abs(lines - Math.round(lines)) < 0.1;
    }""")


def test_15_a_price_needs_its_source_and_date(live_site, check_widths):
    with live_site.visit("operator") as page:
        page.goto("/endpoints/models/new/")
        page.get_by_label("Name", exact=True).fill("priced")
        page.get_by_label("Endpoint").select_option(label="lab")
        page.get_by_label("Model ID").fill("priced")
        page.get_by_label("Input price").fill("1")
        page.get_by_label("Output price").fill("2")
        page.get_by_role("button", name=re.compile("Save|Create|Add")).first.click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(re.compile("source", re.I))
        expect(page.get_by_label("Input price")).to_have_value("1")
        check_widths(page, "price-without-source")
        page.get_by_label("Price source").fill("the provider's list")
        page.get_by_label("Price date").fill("2026-03-01")
        page.get_by_role("button", name=re.compile("Save|Create|Add")).first.click()
        expect(page.get_by_role("heading", name="Endpoints and models")).to_be_visible()


def test_4_5_and_6_a_pilot_ends_and_the_rest_is_launched_without_a_reload(live_site, check_widths):
    live_site.answer(latency_ms=200)
    live_site.create_experiment("pilot", "max_concurrency: 2", launch=False)
    with live_site.visit("researcher") as page:
        page.goto("/experiments/pilot/")
        page.get_by_role("link", name="Launch", exact=True).click()
        page.get_by_role("link", name=f"Run a pilot of {PILOT} trials first").click()
        check_widths(page, "launch-a-pilot")
        page.get_by_role("button", name="Launch pilot").click()
        expect(page.get_by_text(f"Launched: {PILOT} new trials")).to_be_visible()
        page.wait_for_load_state("load")
        page.evaluate(RECORD_TEXTS)
        expect(page.locator("summary", has_text="Pause")).to_be_visible()
        rest = page.get_by_role("link", name="Launch the rest")
        expect(rest).to_be_visible()
        expect(page.locator("#live")).to_contain_text(f"{PILOT} of {PILOT}")
        for label in ("Pause", "Cancel"):
            expect(page.locator("#live-actions").get_by_text(label)).to_have_count(0)
        texts = page.evaluate("window.shown")
        check_widths(page, "pilot-ended")
        rest.click()
        live_site.answer(latency_ms=1000)
        page.get_by_role("button", name="Launch experiment").click()
        expect(page.get_by_text(f"Launched: {ITEMS - PILOT} new trials, {ITEMS} in all")).to_be_visible()
        page.wait_for_load_state("load")
        page.evaluate(RECORD_TEXTS)
        expect(page.locator("#live")).to_contain_text(f"{ITEMS} of {ITEMS}")
        texts += page.evaluate("window.shown")
        assert len(texts) > 10, "the page was followed"
        assert not [text for text in texts if re.search("No worker is (alive|running)", text)]
        expect(page.locator("summary", has_text="Pause")).to_have_count(0)
        check_widths(page, "all-ended")


def test_1_and_7_a_session_expires_and_a_budget_is_raised(live_site, check_widths):
    live_site.answer()
    live_site.create_experiment("budget", "budget: {max_usd: 0.0012}")
    with open_progress(live_site, "budget") as page:
        budget_notice = page.locator("#live").get_by_text(re.compile("The budget of .* is reached"))
        expect(budget_notice.first).to_be_visible()
        check_widths(page, "budget-reached")
        page.context.clear_cookies(name="sessionid")
        press_action(page, "Resume", "after a night")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        with page.expect_navigation() as navigation:
            sign_in(page, "researcher")
        assert navigation.value.status == 200
        expect(page).to_have_url(re.compile("/experiments/budget/progress/$"))
        check_widths(page, "signed-in-again")
        page.goto("/experiments/budget/edit/")
        page.get_by_role("textbox", name="Budget").fill("5")
        page.get_by_label("Reason").fill("more is granted")
        page.get_by_role("button", name="Save").click()
        expect(page).to_have_url(re.compile("/experiments/budget/$"))
        page.goto("/experiments/budget/progress/")
        expect(budget_notice).to_have_count(0)
        expect(page.get_by_text("The budget now allows more calls. Resume the run.")).to_be_visible()
        check_widths(page, "budget-raised")
        press_action(page, "Resume", "the budget is raised")
        expect(page.locator("#live")).to_contain_text(f"{ITEMS} of {ITEMS}")
        expect(page.get_by_text("budget now allows")).to_have_count(0)


def test_8_failed_trials_are_retried_by_class_also_after_a_worker_was_lost(live_site, check_widths):
    live_site.answer(errors={"500": 0.1, "503": 0.1}, latency_ms=0)
    live_site.create_experiment("failures", "max_attempts: 1\nstop_failure_rate: 1")
    with open_progress(live_site, "failures") as page:
        retry = page.get_by_role("button", name=re.compile("Retry .* of class server"))
        expect(page.locator("#live")).not_to_have_attribute("hx-trigger", re.compile("."))
        expect(retry).to_be_visible()
        check_widths(page, "failures")
        live_site.answer()
        retry.click()
        expect(page.get_by_text(re.compile(r"\d+ failed trials will be retried"))).to_be_visible()
        expect(page.locator("#live")).to_contain_text(f"{ITEMS} of {ITEMS}")
        expect(page.locator("#live").get_by_role("link", name="server")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("of class"))).to_have_count(0)
        check_widths(page, "failures-retried")
    live_site.answer(latency_ms=60_000)
    live_site.create_experiment("lost", "max_attempts: 1\nstop_failure_rate: 1\nmax_concurrency: 4")
    with open_progress(live_site, "lost") as page:
        expect(page.locator("#live")).to_contain_text("4 in flight")
        live_site.answer()
        kill_workers(live_site.site)
        retry = page.get_by_role("button", name=re.compile("Retry .* of class worker_lost"))
        expect(retry).to_be_visible()
        expect(page.locator("#live")).to_contain_text(f"{ITEMS - 4} of {ITEMS}")
        check_widths(page, "worker-lost")
        retry.click()
        expect(page.get_by_text("4 failed trials will be retried.")).to_be_visible()
        expect(page.locator("#live")).to_contain_text(f"{ITEMS} of {ITEMS}")


def test_9_a_few_failures_stop_no_run_and_many_do(live_site, check_widths):
    with live_site.visit("researcher") as page:
        page.goto("/experiments/new/")
        page.locator("#execution > summary").click()
        expect(page.get_by_label("Failure rate that stops a run")).to_be_visible()
        expect(page.get_by_label("Minimum attempts before a stop")).to_be_visible()
    live_site.answer(errors={"400": 0.04})
    live_site.create_experiment("few-failures", "max_concurrency: 1")
    with open_progress(live_site, "few-failures") as page:
        expect(page.locator("#live").get_by_text("Done").first).to_be_visible()
        expect(page.locator("#live")).not_to_have_attribute("hx-trigger", re.compile("."))
        failed = int(page.locator(".stat", has_text="Failed").locator("dd").inner_text())
        assert failed >= 2
        expect(page.locator("#live")).to_contain_text(f"{ITEMS - failed} of {ITEMS}")
        check_widths(page, "few-failures")
    live_site.answer(errors={"400": 0.9})
    live_site.create_experiment("many-failures", "max_concurrency: 1")
    with open_progress(live_site, "many-failures") as page:
        expect(page.locator("#live")).to_contain_text("attempts failed permanently")
        expect(page.locator("#live")).to_contain_text("5.0% is the limit")
        check_widths(page, "many-failures")


def test_10_and_16_unusable_answers_are_links_and_trials_are_read_by_keys(live_site, check_widths):
    live_site.answer(errors={"empty": 0.1, "refusal": 0.1, "content_filter": 0.1, "truncated": 0.1})
    live_site.create_experiment("odd", "stop_failure_rate: 1\nmax_attempts: 1")
    with open_progress(live_site, "odd") as page:
        expect(page.locator("#live")).not_to_have_attribute("hx-trigger", re.compile("."))
        check_widths(page, "unusable-answers")
        panel = page.locator("section[aria-labelledby=unusable-answers]")
        failed = int(page.locator(".stat", has_text="Failed").locator("dd").inner_text())
        assert failed > 0
        counts = {}
        for name in ("empty", "truncated", "refused"):
            link = panel.get_by_role("link", name=name)
            counts[name] = int(link.locator("xpath=ancestor::dt/following-sibling::dd[1]").inner_text().split()[0])
            assert counts[name] == count_listed(page, link)
        assert counts["refused"] > failed, "refusals with an answer, and those that ended as failures"
        page.goto("/trials/?experiment=odd&refused=true")
        check_widths(page, "refused-trials")
        page.wait_for_load_state("load")
        page.keyboard.press("j")
        press_and_wait(page, "Enter")
        check_widths(page, "trial")
        for key, reverse_key in (("j", "k"), ("ArrowRight", "ArrowLeft")):
            first = page.url
            press_and_wait(page, key)
            assert page.url != first
            press_and_wait(page, reverse_key)
            expect(page).to_have_url(first)


def count_listed(page, link):
    """Open a link in a new tab. Return the number of trials in its list."""
    with page.context.expect_page() as new_page:
        link.click(modifiers=["Control"])
    list_page = new_page.value
    list_page.wait_for_load_state("load")
    rows = list_page.locator("[data-rows] tbody tr").count()
    list_page.close()
    return rows


def test_16_bracket_keys_move_through_the_trials_of_one_item(live_site):
    live_site.answer()
    live_site.create_experiment("repeated", "samples: 2")
    with open_progress(live_site, "repeated") as page:
        expect(page.locator("#live")).to_contain_text(f"{2 * ITEMS} of {2 * ITEMS}")
        page.goto("/trials/?experiment=repeated&item=item-3")
        page.locator("[data-rows] tbody tr a").first.click()
        key = page.locator(".lede").inner_text().split(",")[0]
        urls = [page.url]
        for bracket in "][":
            press_and_wait(page, bracket)
            urls.append(page.url)
            assert page.locator(".lede").inner_text().startswith(key)
        assert urls[0] != urls[1]


def test_11_a_preflight_is_outdated_after_its_endpoint_changes(live_site, check_widths):
    live_site.answer()
    live_site.create_experiment("checked", launch=False)
    with live_site.visit("researcher") as page:
        page.goto("/experiments/checked/launch/")
        page.get_by_role("button", name="Test all models").click()
        panel = page.locator("section[aria-labelledby=preflight]")
        expect(panel).to_contain_text("Answered in")
        expect(panel).not_to_contain_text("Outdated")
        with live_site.visit("operator") as operator_page:
            operator_page.goto("/endpoints/")
            operator_page.get_by_role("link", name="Edit", exact=True).first.click()
            operator_page.get_by_label("Base URL").fill(live_site.provider.url.replace("127.0.0.1", "localhost"))
            operator_page.get_by_role("button", name="Save").first.click()
            expect(operator_page.get_by_role("heading", name="Endpoints and models")).to_be_visible()
            check_widths(operator_page, "endpoints")
        page.reload()
        expect(panel).to_contain_text("Checked before the endpoint changed")
        check_widths(page, "outdated-preflight")
