"""No page shows one number in two tables, as far as a reader sees them without opening a fold."""

import re
from html.parser import HTMLParser
from itertools import combinations

import pytest
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.shared_rows import shared_rows

PAGES = (
    "experiment_detail",
    "experiment_progress",
    "experiment_results",
    "experiment_analysis",
    "experiment_grading",
    "experiment_agreement",
    "experiment_matrix",
    "experiment_ledger",
    "experiment_files",
)
PRECISE = re.compile(r"−?\d+\.\d+(?: %| pp)?")
"""A number with decimals. Counts repeat for good reasons."""


class VisibleTables(HTMLParser):
    """The numbers of each table outside folded details, in the order of the page."""

    def __init__(self):
        super().__init__()
        self.folds: list[bool] = []
        self.tables: list[list[str]] = []
        self.is_in_table = False

    def handle_starttag(self, tag, attributes):
        if tag == "details":
            self.folds.append("open" not in dict(attributes))
        elif tag == "table" and not any(self.folds):
            self.is_in_table = True
            self.tables.append([])

    def handle_endtag(self, tag):
        if tag == "details":
            self.folds.pop()
        elif tag == "table":
            self.is_in_table = False

    def handle_data(self, data):
        if self.is_in_table and not any(self.folds):
            self.tables[-1] += PRECISE.findall(data)


@shared_rows
def experiment():
    """Two models with rates of 13/17 and 7/17, whose percentages no other number of the pages equals by chance."""
    items = [{"key": f"q-{n}", "input": f"What is {n} plus {n}?", "target": str(2 * n)} for n in range(17)]
    made = factories.make_experiment(
        "sums", dataset=factories.make_dataset("sums", items), scorers=["exact_match"],
        models=[factories.make_model("large"), factories.make_model("small")],
    )  # fmt: skip
    limits = {"large": 13, "small": 7}
    for run in factories.make_runs(made, status="done"):
        limit = limits[run.condition.model.name]
        factories.plan_trials(
            run, answer=lambda item, *_, limit=limit: {"answer": item.target if item.position < limit else "no"}
        )
    grade(made, by="a test")
    rubric = make_scale_rubric("strict", low=0, high=1)
    make_gradings(
        made, "strict", lambda trial: float(trial.answer != "no" and trial.item.position % 5 > 0), rubric=rubric
    )
    return made


@pytest.mark.parametrize("name", PAGES)
def test_two_tables_share_no_number(client, experiment, name, monkeypatch):
    requested = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: requested.append(arguments))
    client.force_login(experiment.owner)
    parser, address = VisibleTables(), reverse(name, args=[experiment.slug])
    page = client.get(address)
    if requested:
        for arguments in requested:
            compute_aggregates(*arguments)
        page = client.get(address)
    parser.feed(page.content.decode())
    assert name not in ("experiment_results", "experiment_analysis") or any(parser.tables)
    for first, second in combinations(map(set, parser.tables), 2):
        assert not first & second, f"{name} shows {sorted(first & second)} in two tables"


def test_the_launch_page_shows_each_cost_once(client, experiment):
    client.force_login(experiment.owner)
    text = client.get(reverse("experiment_launch", args=[experiment.slug])).content.decode()
    assert [text.count(f"<dt>{name} cost</dt>") for name in ("Maximum", "Expected")] == [1, 1]
    assert "Size and cost" in text
    design = client.get(reverse("experiment_detail", args=[experiment.slug])).content.decode()
    assert [design.count(f"<dt>{name} cost</dt>") for name in ("Maximum", "Expected")] == [1, 1]


def test_the_rule_sees_tables_outside_folds_only():
    parser = VisibleTables()
    parser.feed("<table><td>76.5 %</td></table><details><table><td>76.5 %</td></table></details><table>41.2 %</table>")
    assert parser.tables == [["76.5 %"], ["41.2 %"]]
