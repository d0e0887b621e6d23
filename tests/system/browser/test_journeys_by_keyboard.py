"""The journeys of researchers by keyboard alone: no test here uses a mouse. Raters' keys have tests of their own."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from datasets_app.models import Dataset
from evalsite.lib import permissions
from grading_app.models import Adjudication, RatingQueue
from runs_app.models import Experiment, Run
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric
from tests.integration.dataset_pages.conftest import run_task_now
from tests.integration.pages.conftest import make_lab, make_people

MOST_TABS = 250


@pytest.fixture
def world(transactional_db, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return make_lab(make_people())


@pytest.fixture
def page(world, visitor):
    return visitor(world.people["owner"])


def tab_to(page, target):
    """Press Tab until the target has the focus."""
    for _ in range(MOST_TABS):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {target}")


def press_on(page, target, key="Enter"):
    tab_to(page, target)
    page.keyboard.press(key)


def test_find_an_experiment(page, world):
    page.goto(reverse("home"))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search")).to_be_visible()
    page.keyboard.type("pilot")
    found = page.locator("#search-found").get_by_role("link", name=re.compile("pilot")).first
    expect(found).to_be_visible()
    press_on(page, found)
    expect(page).to_have_url(re.compile(reverse("experiment_detail", args=["pilot"])))


def test_design_an_experiment(page, world):
    page.goto(reverse("experiment_new"))
    tab_to(page, page.get_by_label("Name", exact=True))
    page.keyboard.type("by-keyboard")
    dataset = page.locator("select[name=dataset]")
    tab_to(page, dataset)
    while dataset.evaluate("select => select.selectedOptions[0].text") != str(world.experiment.dataset):
        page.keyboard.press("ArrowDown")
    press_on(page, page.locator("summary", has_text="Rating dimensions"))
    for name in ("dimensions", "language_models", "prompts", "samplers"):
        press_on(page, page.locator(f"input[name={name}]").first, "Space")
    press_on(page, page.locator("button:visible", has_text="Save draft"))
    expect(page).to_have_url(re.compile(reverse("experiment_detail", args=["by-keyboard"])))
    draft = Experiment.objects.get(slug="by-keyboard")
    assert draft.dataset == world.experiment.dataset
    assert (draft.language_models.count(), draft.prompts.count(), draft.dimensions.count()) == (1, 1, 1)


def test_pause_a_running_experiment(page, world):
    Run.objects.filter(pk=world.run.pk).update(n_pending=15, n_done=0, n_failed=0, status="running")
    page.goto(reverse("experiment_progress", args=["pilot"]))
    press_on(page, page.locator("summary", has_text="Pause").first)
    press_on(page, page.locator("details[open] > .action-form").get_by_role("button"))
    expect(page.get_by_text("1 run paused.")).to_be_visible()


def test_read_from_the_results_to_one_trial_and_flag_it(page, world):
    page.goto(reverse("experiment_results", args=["pilot"]))
    press_on(page, page.locator(".tabs a", has_text="Answers"))
    cell = page.locator(".score-matrix td > a").first
    press_on(page, cell)
    trial = page.locator(".cell-answers a[href*='/trials/']").first
    expect(trial).to_be_visible()
    press_on(page, trial)
    expect(page).to_have_url(re.compile(r"/trials/\d+/"))
    tab_to(page, page.get_by_label("Reason for the flag"))
    page.keyboard.type("odd answer")
    page.keyboard.press("Enter")
    expect(page.get_by_text("odd answer").first).to_be_visible()


def test_choose_the_sections_of_a_report(page, world):
    page.goto(reverse("report_edit", args=["pilot"]))
    section = page.locator(".report-choice input[type=checkbox]").first
    assert section.is_checked()
    press_on(page, section, "Space")
    press_on(page, page.get_by_role("button", name="Save", exact=True))
    expect(page).to_have_url(re.compile(reverse("experiment_report", args=["pilot"])))
    page.goto(reverse("report_edit", args=["pilot"]))
    expect(section).not_to_be_checked()


def test_import_a_dataset(visitor, monkeypatch, tmp_path):
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)
    table = tmp_path / "sums.csv"
    table.write_text("key,question,answer\na,What is 1 + 1?,2\nb,What is 2 + 2?,4\n")
    page = visitor(factories.make_user("curator", permissions.CURATOR))
    page.on("filechooser", lambda _: None)  # Chromium reports choosers only some time after the first listener came.
    page.goto(reverse("dataset_new"))
    with page.expect_file_chooser() as chooser:
        press_on(page, page.get_by_label("Items"))
    chooser.value.set_files(table)
    tab_to(page, page.get_by_label("Name"))
    page.keyboard.type("sums")
    press_on(page, page.get_by_role("button", name="Upload and map columns"))
    press_on(page, page.get_by_role("button", name="Import items"))
    expect(page.locator("#summary")).to_contain_text("2 active")
    approve = page.locator("summary", has_text="Approve")
    press_on(page, approve)
    tab_to(page, page.get_by_label("Reason").locator("visible=true"))
    page.keyboard.type("Checked by hand")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Approved")
    assert Dataset.objects.get(slug="sums").status == "approved"


def test_grade_an_answer_on_which_judges_differ(visitor, owner, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)
    experiment = make_answered_experiment(items=4, owner=owner)
    rubric = make_scale_rubric()
    make_gradings(experiment, "judge-a", lambda _: 2.0, rubric=rubric)
    make_gradings(experiment, "judge-b", lambda trial: 2.0 + trial.item.position, rubric=rubric)
    page = visitor(owner)
    page.goto(reverse("experiment_grading", args=["pilot"]))
    press_on(page, page.get_by_role("navigation").get_by_role("link", name="Disagreements").first)
    press_on(page, page.locator("[data-rows] tbody a").first)
    tab_to(page, page.get_by_label("Score").first)
    page.keyboard.type("4")
    tab_to(page, page.get_by_label("Reason").first)
    page.keyboard.type("Read twice")
    press_on(page, page.get_by_role("button", name="Save decision").first)
    expect(page.locator("main").get_by_text("Read twice").first).to_be_visible()
    assert list(Adjudication.objects.values_list("reason", flat=True)) == ["Read twice"]


def test_create_and_open_a_queue_for_people(page, world):
    page.goto(reverse("rating_queue_list"))
    press_on(page, page.get_by_role("link", name="New queue").first)
    for label, text in (("Title", "Pleasant pictures"), ("Name", "pleasant"), ("Instructions", "Go by feeling.")):
        tab_to(page, page.get_by_label(label, exact=True))
        page.keyboard.press("Control+a")
        page.keyboard.type(text)
    dataset = page.locator("select[name=dataset]")
    tab_to(page, dataset)
    page.keyboard.type("rated")
    press_on(page, page.locator("input[name=dimensions]").first, "Space")
    press_on(page, page.get_by_role("button", name="Save draft"))
    press_on(page, page.locator("summary", has_text="Open").first)
    press_on(page, page.locator("details[open] > .action-form").get_by_role("button"))
    expect(page.locator("h1")).to_contain_text("Open")
    queue = RatingQueue.objects.get(name="pleasant")
    assert (queue.status, queue.dataset.slug, queue.dimensions.count()) == ("open", "rated", 1)


def test_the_focus_stays_on_a_run_while_its_experiment_is_polled(page, world):
    page.goto(reverse("experiment_progress", args=["pilot"]))
    run = page.locator("#live tbody a").first
    tab_to(page, run)
    for done in (1, 2):
        with page.expect_response(re.compile("progress/.*shown=")):
            Run.objects.update(n_attempts=1000 + done)
        expect(page.locator("#live")).to_contain_text(re.compile(f"1.?00{done}"))
        expect(run).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(reverse("run_detail", args=[world.run.pk])))
