"""Each table with an interval names its method, and each table with p names its test."""

import pytest
from django.core.cache import cache
from django.http import QueryDict
from django.urls import reverse

from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import TableBlock
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.scope import ScopeForm
from grading_app.results.scores import list_measures
from grading_app.results.stored_results import get_results
from grading_app.results.table import INTERVALS, ResultTable
from tests import factories
from tests.factories.gradings import build_numbered_answer, make_answered_experiment, make_gradings

pytestmark = pytest.mark.django_db
METHODS = (
    "Wilson", "Student's t", "Tango", "jackknife", "Clopper and Pearson", "Fisher", "score interval", "sign-flip",
    "Gaffke", "Wald", "noncentral t", "bounded", "Bland and Altman",
)  # fmt: skip
TESTS = (
    "paired t", "McNemar", "sign flips", "permutation", "Welch", "Hotelling", "likelihood-ratio", "Kolmogorov",
    "Wilcoxon", "one-sided t-tests", "not tested",
)  # fmt: skip


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_graded(samples):
    experiment = make_answered_experiment(items=30, samples=samples, models=("a", "b", "c"))
    skill = {"a": 0, "b": 3, "c": 7}
    make_gradings(
        experiment,
        "exact_match",
        lambda trial: float(
            (trial.item.position * 7 + trial.sample_idx) % 11 < 3 + skill[trial.run.condition.model.name]
        ),
        kind="rule",
    )
    return experiment


def make_rated():
    items = [
        {
            "key": f"picture-{n}",
            "category": "ab"[n % 2],
            "norms": {"valence": 1.0 + n % 6},
        }
        for n in range(24)
    ]
    experiment = factories.make_experiment(
        dataset=factories.make_dataset("pictures", items),
        dimensions=[factories.make_dimension("valence")],
        models=[factories.make_model(name) for name in "ab"],
        samples=2,
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=build_numbered_answer)
    return experiment


def list_tables(experiment, client):
    """Yield (page, table) of each page of results."""
    first = min(experiment.conditions.filter(stage="generate").values_list("pk", flat=True))
    for measure in list_measures(experiment):
        query = QueryDict(f"measure={measure.key}&margin=0.1&baseline={first}")
        sections = build_section_tables(load_analysis_data(ScopeForm(query, experiment).get_scope()))
        yield from (("analysis", table) for tables in sections.values() for table in tables)
    for block in build_document(experiment).list_blocks(TableBlock):
        shown = [column for column in block.table.columns if not block.shown or column.name in block.shown]
        yield "report", ResultTable(**{**vars(block.table), "columns": shown})
    screen = get_results(BoardQuery(experiment, baseline=first)).value.screen
    yield from (("results", table) for table in screen.tables)
    client.force_login(experiment.owner)
    page = client.get(reverse("compare"), {"a": experiment.slug, "b": experiment.slug, "margin": "0.1"})
    yield from (("compare", content["table"]) for content in page.context["tables"])


@pytest.mark.parametrize(
    "make", [lambda: make_graded(1), lambda: make_graded(3), make_rated], ids=["once", "repeated", "rated"]
)
def test_intervals_name_their_method_and_p_its_test(client, make):
    without, n_intervals, n_tests = [], 0, 0
    for page, table in list_tables(make(), client):
        text = " ".join(
            [table.formula, table.test, table.sentence, *table.notes, *(one.label for one in table.columns)]
        )
        cells = " ".join(str(row.get("test", "")) for row in table.rows)
        if any(column.kind in INTERVALS for column in table.columns):
            n_intervals += 1
            without += [(page, table.name, "interval")] if not any(name in text for name in METHODS) else []
        if any(column.kind == "p" for column in table.columns):
            n_tests += 1
            named = f"{text} {cells}".lower()
            without += [(page, table.name, "test")] if not any(name.lower() in named for name in TESTS) else []
    assert without == [], without
    assert n_intervals > 8
    assert n_tests > 4
