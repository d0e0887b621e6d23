"""A researcher designs a space of tasks, runs it adaptively on the simulated provider, and reads its surface."""

import json
import re

import pytest
from django.core.management import call_command
from django.urls import reverse
from playwright.sync_api import expect

from evalsite.lib import permissions
from runs_app.models import Experiment, Point, Run
from runs_app.planning.shipped_designs import create_shipped_designs
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.integration.dataset_pages.conftest import run_task_now
from tests.system.processes.workers import drain_process

pytestmark = pytest.mark.processes
SPACE = """name: mine
precision: {some: {count: 8, targetci: 0.2, maximum: 32}}
tasks:
  - {name: arithmetic, params: {length: [4, 16], max_depth: [0, 2]}}
  - {name: boolean, params: {length: [4, 8]}}
"""
PROFILES = {"sharp": {"*": {"start": 4, "falls": {"length": 0.1}, "tokens": 30}}}


def test_a_space_is_designed_run_adaptively_and_explored(
    transactional_db, visitor, checked, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)
    create_shipped_designs()
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER))
    build_space(page)
    call_command("dataset", "approve", "mine@1", "--reason", "the space of the study")
    capsys.readouterr()
    call_command("dataset", "answers", "mine@1")
    answers, profiles = tmp_path / "answers.jsonl", tmp_path / "profiles.json"
    answers.write_text(capsys.readouterr().out)
    profiles.write_text(json.dumps(PROFILES))
    with simulator_process(SimulatorConfig(answers=(answers,), profiles=(profiles,))) as provider:
        endpoint = factories.make_endpoint("rehearsal", base_url=provider.url, max_concurrency=64)
        factories.make_model("sharp", endpoint=endpoint, model="sharp")
        design_and_launch(page)
        with drain_process() as worker:
            assert worker.wait(timeout=300) == 0
    assert Run.objects.get().status == "done"
    statuses = set(Point.objects.values_list("status", flat=True))
    assert statuses <= {"enough", "exhausted"}
    assert "enough" in statuses
    page.goto(reverse("experiment_points", args=["study"]))
    expect(page.get_by_text("6 of 6 points")).to_be_visible()
    read_surface(page)
    checked(page, "surface-of-a-designed-space")


def build_space(page):
    page.goto(reverse("parametric_new"))
    page.get_by_text("As text", exact=True).click()
    page.get_by_label("Space").fill(SPACE)
    expect(page.get_by_text("6 points, 192 cases")).to_be_visible()
    page.locator("#id_slug").fill("mine")
    page.get_by_role("button", name="Build dataset").click()
    expect(page.get_by_text("mine@1 is a draft of 192 items.")).to_be_visible()


def design_and_launch(page):
    page.goto(reverse("experiment_new"))
    page.wait_for_load_state("load")
    page.get_by_label("Name", exact=True).fill("study")
    page.get_by_label("Dataset", exact=True).select_option(label="mine@1")
    page.get_by_role("checkbox", name=re.compile("^sharp ")).check()
    page.get_by_label(re.compile(r"zeroshot-nosys@1")).check()
    page.get_by_label(re.compile(r"greedy-2k@1")).check()
    page.locator("summary", has_text="Measure").click()
    page.locator("input[name=scorers][value=final_answer]").check()
    page.locator("#id_max_usd").fill("5")
    page.get_by_text("Adaptive stopping").click()
    page.get_by_label("Use the dataset's stopping rules").check()
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_role("heading", name="study")).to_contain_text("Draft")
    assert Experiment.objects.get().adaptive
    page.wait_for_load_state("load")
    page.get_by_role("link", name="Launch").click()
    page.get_by_role("button", name="Launch experiment").click()
    expect(page.locator("#live")).to_be_visible()


def read_surface(page):
    page.get_by_role("link", name="Explorer", exact=True).click()
    page.get_by_role("link", name="Heat map").click()
    expect(page.locator(".surface-map td a")).to_have_count(4)
    page.wait_for_load_state("load")
    page.get_by_label("Task", exact=True).select_option("boolean")
    expect(page.locator(".surface-map td a")).to_have_count(2)
    page.get_by_role("link", name="Task leaderboard").click()
    row = page.locator(".model-board tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("sharp")
