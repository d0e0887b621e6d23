"""No page shows a number of a condition in two tables.

A number has three digits or more, so that an equal number elsewhere is no coincidence. A figure's table of values does
not count: it is the text of the picture, for readers who do not see it.
"""

import re
from collections import defaultdict

import pytest
from django.urls import reverse
from lxml import html

from grading_app.grading.scoring import grade
from grading_app.models import CachedAggregate
from grading_app.results.cached_aggregates import compute_rows
from runs_app.templatetags.experiment_tabs import TABS
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.judges import write_ledger
from tests.integration.results.test_text_in_figures import make_space_study

pytestmark = pytest.mark.django_db
NUMBER = re.compile(r"[−-]?\d*\.\d+")
EXCEPTIONS = {
    ("experiment_analysis", "Differences between conditions", "All tests of differences"):
        "two quantities: p is equal before and after a correction with the factor 1, as Holm's for the largest p",
}  # fmt: skip
"""Pairs of tables that may share numbers, with the reason."""


def list_pages(experiment):
    """Return the addresses of all pages under the six tabs, and of the comparison of two conditions, by name."""
    slug, names = experiment.slug, {name for pages in TABS.values() for _, name in pages} - {"trial_list"}
    a, b = (f"{slug}:{key}" for key in experiment.conditions.order_by("pk").values_list("pk", flat=True)[:2])
    return {
        **{name: reverse(name, args=[slug]) for name in sorted(names)},
        "trial_list": reverse("trial_list", query={"experiment": slug}),
        "compare": reverse("compare", query={"a": a, "b": b}),
    }


def are_of_two_measures(first, second):
    """Return whether two captions differ in their measure only. Two measures may have equal numbers."""
    measures, titles = zip(*(name.partition(": ")[::2] for name in (first, second)), strict=True)
    strip = re.compile(r"^Table \d+\. ")
    return titles[0] == titles[1] != "" and strip.sub("", measures[0]) != strip.sub("", measures[1])


def list_numbers(table):
    """Yield pairs of a row's first cell and a number of the row."""
    for row in table.xpath(".//tbody/tr"):
        head, *cells = (" ".join(cell.text_content().split()) for cell in row.xpath("./td | ./th"))
        for cell in cells:
            for number in NUMBER.findall(cell):
                if len(number.strip("−-0.").replace(".", "")) >= 3:
                    yield head, number


def name_table(table):
    caption = " ".join(table.xpath("string(./caption)").split())
    return caption or " ".join(table.xpath("string((preceding::h2 | preceding::h3)[last()])").split())


def find_repeated_numbers(text):
    """Return the numbers in two tables of a page: (names of two tables) and the pairs of a row and a number."""
    places, names = defaultdict(set), {}
    for place, table in enumerate(html.fromstring(text).xpath("//main//table[not(ancestor::figure)]")):
        names[place] = name_table(table)
        for entry in list_numbers(table):
            places[entry].add(place)
    repeated = defaultdict(set)
    for entry, found in places.items():
        if len(found) > 1:
            first, second = sorted(found)[:2]
            repeated[names[first], names[second]].add(entry)
    return repeated


def make_study():
    """Create two models and two prompts over 37 questions in two waves, graded by a rule and by a judge."""
    items = [{"key": f"q-{n:02}", "input": f"What is {n} plus {n}?", "target": str(2 * n)} for n in range(37)]
    experiment = factories.make_experiment(
        "sums", dataset=factories.make_dataset("sums", items), scorers=["exact_match"],
        models=[factories.make_model("large"), factories.make_model("small")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("careful")],
    )  # fmt: skip
    for wave, limits in ((0, (30, 33, 11, 17)), (1, (29, 32, 12, 14))):
        for limit, run in zip(limits, factories.make_runs(experiment, wave=wave, status="done"), strict=True):
            factories.plan_trials(
                run, answer=lambda item, *_, limit=limit: item.target if item.position < limit else "no"
            )
    grade(experiment, by="a test")
    make_gradings(
        experiment, "strict", lambda trial: float(trial.answer != "no" and trial.item.position % 9 != 3),
        rubric=make_scale_rubric("strict-rubric", low=0, high=1),
    )  # fmt: skip
    write_ledger(experiment)
    return experiment


def test_the_search_finds_a_number_in_two_tables():
    row = "<tr><td>large</td><td>83.8 %</td><td>0.5</td></tr>"
    table = f"<table><caption>T{{}}</caption><tbody>{row}</tbody></table>"
    page = f"<main>{table.format(1)}{table.format(2)}<figure>{table.format(3)}</figure></main>"
    assert find_repeated_numbers(page) == {("T1", "T2"): {("large", "83.8")}}


@pytest.mark.parametrize("make", [make_study, pytest.param(make_space_study, marks=pytest.mark.slow)])
def test_no_page_shows_a_number_in_two_tables(client, monkeypatch, make):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    study = make()
    client.force_login(study.owner)
    pages, texts = list_pages(study), {}
    for name, address in pages.items():
        response = client.get(address)
        if waiting := list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)):
            compute_rows(waiting, seconds=60)
            response = client.get(address)
        if response.status_code == 200:
            texts[name] = response.content.decode()
    repeated = {
        (name, *tables): found
        for name, text in texts.items()
        for tables, found in find_repeated_numbers(text).items()
        if (name, *tables) not in EXCEPTIONS and not are_of_two_measures(*tables)
    }
    assert not repeated, "\n".join(f"{tables}: {sorted(found)[:6]}" for tables, found in repeated.items())
    with_tables = {name for name, text in texts.items() if html.fromstring(text).xpath("//main//table")}
    assert {"experiment_results", "experiment_analysis", "experiment_report", "experiment_detail"} <= with_tables
    assert not [name for name, text in texts.items() if "A worker is calculating" in text]
