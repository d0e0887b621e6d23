"""Results on a laptop: no table is cut, and the questions keep the width that a reader needs."""

import pytest
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.system.browser.page_checks import LAPTOP

REFUSED = {"status": "failed", "error_class": "content_refused", "answer": ""}
QUESTION = "A train leaves at 09:40 and arrives at 13:05 on the same day. How many minutes does journey {} take?"
# The visible tables that are wider than the box that scrolls them, with both widths.
CUT_TABLES = """() => [...document.querySelectorAll('#main table')].filter(table => table.checkVisibility())
    .map(table => [table.closest('[id]').id, table.scrollWidth, table.parentElement.clientWidth])
    .filter(([, table, box]) => table > box)"""


@pytest.fixture(autouse=True)
def aggregates(monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: compute_aggregates(*arguments))


@pytest.mark.parametrize("has_costs", [True, False])
@pytest.mark.parametrize("n_refused", [0, 8])
def test_tables_are_whole_and_questions_keep_their_width(owner, visitor, n_refused, has_costs):
    """Two models x two prompts; the large model may refuse some items."""
    items = [{"key": f"arithmetic-{n:02}", "input": QUESTION.format(n), "target": str(n)} for n in range(20)]
    experiment = factories.make_experiment(
        "journeys", owner=owner, dataset=factories.make_dataset("journeys", items), scorers=["exact_match"],
        models=[factories.make_model("sim-large"), factories.make_model("sim-small")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        is_large = run.condition.model.name == "sim-large"

        def answer(item, *_, is_large=is_large):
            cost = ("0.000309" if is_large else "0.0000187") if has_costs else "0"
            if is_large and item.position < n_refused:
                return REFUSED | {"cost_usd": cost}
            return {"answer": item.target if is_large else "no", "cost_usd": cost}

        factories.plan_trials(run, answer=answer)
    grade(experiment, by="a test")
    page = visitor(owner, LAPTOP)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    assert page.locator("#table-conditions th", has_text="Cost per answer").count() == has_costs
    assert page.locator("#table-conditions th", has_text="Without a score").count() == bool(n_refused)
    assert page.evaluate(CUT_TABLES) == []
    question = page.locator(".telling-items .item-text").first
    assert question.bounding_box()["width"] >= 300
