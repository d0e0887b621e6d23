"""The primary measure of a design comes first on every page and in every file."""

import json
from io import StringIO

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import TableBlock
from grading_app.results.comparison.condition_sides import list_sides
from grading_app.results.headlines import load_headlines
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.scope import ScopeForm
from grading_app.results.scores import list_measures
from runs_app.models import Experiment
from runs_app.planning.design import Design
from runs_app.planning.spec_io import build_spec
from tests import factories
from tests.page_text import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
ITEMS = 6


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(primary=None, items=ITEMS, **options):
    """Return an experiment with the rules `numeric` and `exact_match`."""
    experiment = factories.make_experiment(
        "study", dataset=factories.make_dataset("items", items), models=[factories.make_model(name) for name in "ab"],
        scorers=["numeric", "exact_match"], primary_measure=primary, **options,
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        is_b = run.condition.model.name == "b"
        factories.plan_trials(
            run,
            answer=lambda item, dimension, *_, is_b=is_b: (
                {"answer": "4", "rating": 3 + is_b} if dimension else item.target if is_b else f"{item.target} or 77"
            ),
        )
    grade(experiment, by="test")
    return experiment


def open_results(client, experiment):
    client.force_login(experiment.owner)
    return client.get(reverse("experiment_results", args=[experiment.slug]))


def test_without_one_the_first_rule_of_the_design_comes_first(client):
    experiment = make_study()
    assert list_measures(experiment)[0].key == "numeric"
    assert compute_leaderboard(BoardQuery(experiment)).primary == ""
    assert "primary measure" not in page_text(open_results(client, experiment))


def test_every_page_and_file_shows_it_first(client):
    experiment = make_study("exact_match")
    assert [measure.key for measure in list_measures(experiment)] == ["exact_match", "numeric"]
    page = open_results(client, experiment)
    assert page.context["first"]["table"].title == "Exact match (primary measure)"
    assert page.context["screen"].problem == ""
    (totals,) = Experiment.objects.filter(pk=experiment.pk).with_totals()
    assert load_headlines([totals], experiment.owner)[experiment.pk].measure == "Exact match"
    scope = ScopeForm({}, experiment)
    assert scope.is_valid()
    assert scope.get_scope().measure.key == "exact_match"
    (sides,) = list_sides([experiment]).values()
    a, b = (side for side in sides if not side.is_whole)
    compared = client.get(f"{reverse('compare')}?a={a.reference}&b={b.reference}")
    assert compared.context["measure"].key == "exact_match"
    matrix = client.get(reverse("experiment_matrix", args=[experiment.slug]))
    assert matrix.context["scope"].measure.key == "exact_match"
    tables = [block.table.name for block in build_document(experiment).list_blocks(TableBlock)]
    boards = [name for name in tables if name.startswith("leaderboard-")]
    assert boards[0] == "leaderboard-exact_match"
    printed = StringIO()
    call_command("status", experiment.slug, "--json", stdout=printed)
    assert json.loads(printed.getvalue())["scores"][0]["measure"] == "exact_match"


def test_it_can_change_after_the_launch_and_pages_follow_at_once(client):
    experiment = make_study()
    Experiment.objects.filter(pk=experiment.pk).update(status="active")
    open_results(client, experiment)
    call_command("experiment", "set", "study", "--primary-measure", "exact_match", stdout=StringIO())
    assert open_results(client, experiment).context["first"]["table"].title == "Exact match (primary measure)"
    call_command("experiment", "set", "study", "--primary-measure", "none", stdout=StringIO())
    assert open_results(client, experiment).context["first"]["table"].title == "Number within tolerance"
    assert experiment.history.filter(aspect="primary measure").count() == 2
    with pytest.raises(CommandError, match="primary-measure"):
        call_command("experiment", "set", "study", "--primary-measure", "x" * 201, stdout=StringIO())


def test_a_measure_without_scores_is_named_before_the_launch_and_on_the_results(client):
    experiment = make_study("strict-judge")
    (warning,) = [text for text in Design.load(experiment).find_warnings() if text.startswith("primary_measure")]
    assert warning.startswith("primary_measure: strict-judge is no dimension, rule or judge of this design (numeric, ")
    page = open_results(client, experiment)
    assert "The primary measure strict-judge has no scores; Number within tolerance comes first." in page_text(page)
    experiment.primary_measure = "numeric"
    assert not [text for text in Design.load(experiment).find_warnings() if text.startswith("primary_measure")]


def test_a_primary_rule_leads_although_ratings_have_norms(client):
    items = [{"key": f"i{n}", "target": str(n), "norms": {"valence": 3 + n % 3}} for n in range(ITEMS)]
    experiment = make_study("numeric", items, dimensions=[factories.make_dimension("valence")])
    page = open_results(client, experiment)
    assert page.context["first"]["table"].title.endswith("(primary measure)")
    Experiment.objects.filter(pk=experiment.pk).update(primary_measure="valence")
    assert open_results(client, experiment).context["first"]["table"].title == "Closeness to people"


def test_an_experiment_file_states_it():
    experiment = make_study("exact_match")
    assert build_spec(experiment)["primary_measure"] == "exact_match"
    experiment.primary_measure = None
    assert build_spec(experiment)["primary_measure"] is None
