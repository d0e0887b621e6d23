"""The workflow of a researcher in a browser, from signing in to reading a trial, with and without scripts."""

import re

import pytest
from django.contrib.auth import get_user_model
from playwright.sync_api import expect

from runs_app.models import Experiment, LanguageModel, Preflight, Run
from tests import factories
from tests.system.browser.page_checks import press_and_wait

PASSWORD = "correct horse battery staple"


@pytest.fixture
def researcher(owner):
    """A researcher, and the dataset, models, prompt and sampler of a design."""
    owner.set_password(PASSWORD)
    owner.save()
    factories.make_dataset("questions", 5)
    factories.make_model("small")
    factories.make_model("unpriced", input_price=None, output_price=None)
    factories.make_prompt("plain", system="Answer briefly.")
    factories.make_sampler("short", max_tokens=100)
    return owner


def sign_in(page, user):
    page.goto("/")
    page.get_by_label("Username").fill(user.get_username())
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def fill_design(page):
    expect(page.get_by_role("button", name="Save draft")).to_be_visible()
    page.wait_for_load_state("load")
    page.get_by_label("Name", exact=True).fill("first-try")
    page.get_by_label("Dataset", exact=True).select_option(label="questions@1")
    page.get_by_role("checkbox", name=re.compile("^small ")).check()
    page.get_by_label(re.compile("plain@1")).check()
    page.get_by_label(re.compile("short@1")).check()
    page.get_by_label("Samples", exact=True).fill("3")
    page.locator("#id_max_usd").fill("5")


def test_a_researcher_designs_launches_watches_and_reads_an_experiment(researcher, visitor):
    page = visitor()
    sign_in(page, researcher)
    page.get_by_role("link", name="New experiment").first.click()
    fill_design(page)
    panel = page.locator("#design-summary")
    page.get_by_label("Samples", exact=True).blur()
    expect(panel).to_contain_text(re.compile(r"Trials\s*15"))
    page.get_by_role("checkbox", name=re.compile("^unpriced ")).check()
    expect(panel).to_contain_text("price unknown")
    page.get_by_role("checkbox", name=re.compile("^unpriced ")).uncheck()
    expect(panel).not_to_contain_text("price unknown")
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_role("heading", name="first-try")).to_contain_text("Draft")
    expect(page.locator("#preview")).to_contain_text("What is 0 plus 0?")
    page.wait_for_load_state("load")
    page.get_by_label("Item", exact=True).fill("item-3")
    page.get_by_label("Item", exact=True).press("Tab")
    expect(page.locator("#preview")).to_contain_text("What is 3 plus 3?")
    page.get_by_role("link", name="Launch").click()
    expect(page.get_by_text("Trials to run")).to_be_visible()
    page.get_by_role("button", name="Launch experiment").click()
    expect(page.locator("#live")).to_contain_text("0 of 15")
    check_live_progress(page)
    pause_and_change_limit(page)


def test_a_choice_that_wraps_on_a_phone_stays_beside_its_box(researcher, visitor):
    factories.make_sampler("a-sampler-with-a-name-that-takes-two-lines-on-a-phone", max_tokens=100)
    page = visitor(researcher, viewport={"width": 390, "height": 844})
    page.goto("/experiments/new/")
    lines = page.locator("label", has_text="takes-two-lines").evaluate("""label => {
        const range = document.createRange();
        range.selectNodeContents(label.lastChild);
        const box = label.querySelector("input").getBoundingClientRect();
        const boxes = [...range.getClientRects()].filter(line => line.width > 1);
        return boxes.map(line => line.left >= box.right);
    }""")
    assert len(lines) > 1
    assert all(lines)


def check_live_progress(page):
    """Assert that the page follows the counters and stops polling when the run is done."""
    run = Run.objects.get()
    Run.objects.filter(pk=run.pk).update(n_pending=8, n_done=6, n_failed=1, errors={"timeout": 3})
    expect(page.locator("#live")).to_contain_text("6 of 15")
    expect(page.get_by_role("link", name="timeout")).to_be_visible()
    Run.objects.filter(pk=run.pk).update(n_pending=0, n_done=14, status="done")
    expect(page.locator("#live")).to_contain_text("14 of 15")
    expect(page.locator("#live")).not_to_have_attribute("hx-trigger", re.compile("."))
    Run.objects.filter(pk=run.pk).update(n_pending=15, n_done=0, n_failed=0, status="running")


def pause_and_change_limit(page):
    page.reload()
    page.locator("summary", has_text="Pause").click()
    page.get_by_label("Reason").first.fill("Lunch")
    page.locator("details[open]").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("1 run paused.")).to_be_visible()
    page.locator("[data-rows] a").first.click()
    expect(page.get_by_role("row", name=re.compile("Lunch"))).to_be_visible()
    page.get_by_label("Calls in flight").fill("7")
    page.get_by_role("button", name="Change limit").click()
    expect(page.get_by_text("The limit is 7 calls in flight from the next claim on.")).to_be_visible()
    assert Run.objects.get().max_concurrency == 7


def test_everything_works_without_a_script(researcher, visitor):
    page = visitor(java_script_enabled=False)
    sign_in(page, researcher)
    page.goto("/experiments/new/")
    fill_design(page)
    page.get_by_role("button", name="Show size and cost").click()
    expect(page.locator("#design-summary")).to_contain_text("15")
    assert not Experiment.objects.exists()
    page.get_by_role("button", name="Save draft").click()
    page.get_by_role("link", name="Launch").click()
    page.get_by_role("button", name="Launch experiment").click()
    page.locator("summary", has_text="Cancel").click()
    form = page.locator("details[open]")
    form.get_by_label("Reason").fill("Wrong prompt")
    form.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("1 run cancelled.")).to_be_visible()
    assert Run.objects.get().status == "cancelled"


def test_a_design_error_appears_at_its_field(researcher, visitor, checked):
    page = visitor(researcher)
    page.goto("/experiments/new/")
    page.get_by_label("Name", exact=True).fill("Not A Name")
    page.get_by_role("button", name="Save draft").click()
    summary = page.get_by_role("alert")
    expect(summary).to_be_focused()
    summary.get_by_role("link", name="Name").click()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    expect(page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    checked(page, "experiment-new-with-errors-1280-light")


def test_trials_are_read_by_filter_and_keyboard(researcher, visitor):
    experiment = factories.make_experiment("read-me", owner=researcher, samples=4, status="active")
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(
        run,
        answer=lambda item, dimension, sample_idx: (
            factories.build_failed_fields("timeout") if sample_idx == 3 else f"It is {sample_idx}."
        ),
    )
    page = visitor(researcher)
    page.goto("/trials/?experiment=read-me")
    page.get_by_label("Status (optional)").select_option("failed")
    page.wait_for_url("**status=failed**")
    assert "contains=" not in page.url
    page.keyboard.press("j")
    press_and_wait(page, "Enter")
    expect(page.get_by_role("heading", name=re.compile("Trial"))).to_contain_text("Failed")
    first = page.url
    page.get_by_role("link", name="Next").click()
    expect(page).not_to_have_url(first)
    expect(page.get_by_role("heading", name=re.compile("Trial"))).to_contain_text("Failed")
    expect(page).to_have_url(re.compile("status=failed"))
    page.get_by_role("link", name="Back to list").click()
    expect(page.get_by_label("Status (optional)")).to_have_value("failed")


def test_markup_in_an_answer_is_shown_as_text(researcher, visitor):
    experiment = factories.make_experiment("hostile", owner=researcher, status="active")
    (run,) = factories.make_runs(experiment, status="done")
    markup = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    trial = factories.plan_trials(
        run, answer=lambda *_: {"answer": markup, "reasoning": markup, "raw_response": markup}
    )[0]
    page = visitor(researcher)
    for address in (f"/trials/{trial.pk}/", "/trials/"):
        page.goto(address)
        expect(page.get_by_text("<img src=x").first).to_be_visible()
        assert page.title() != "owned"


def test_a_test_call_reports_its_progress_in_its_row(researcher, visitor):
    page = visitor(researcher)
    page.goto("/endpoints/")
    model = LanguageModel.objects.get(name="small")
    row = page.locator(f"#model-{model.pk}-status")
    row.get_by_role("button", name="Test").click()
    expect(row).to_contain_text("Waiting")
    Preflight.objects.filter(model=model).update(status="ok", latency_ms=12, served_model="small-1")
    expect(row).to_contain_text("Answered in 12 ms as small-1.")
    expect(row).not_to_have_attribute("hx-trigger", re.compile("."))


def test_signing_out_ends_the_session(researcher, visitor):
    page = visitor()
    sign_in(page, researcher)
    page.locator("summary", has_text="owner").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("summary", has_text="owner")).to_have_count(0)
    page.wait_for_load_state("load")
    page.goto("/experiments/")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert get_user_model().objects.filter(username="owner").exists()
