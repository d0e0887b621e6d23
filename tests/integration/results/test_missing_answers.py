"""Planned answers without a score are counted with their reasons, and never make a condition look better."""

import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.descriptives import build_descriptive_tables
from grading_app.results.figures.share_rows import ShareRow
from grading_app.results.frames import estimate_conditions
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.results_page import describe_lead
from grading_app.results.scope import ScopeForm
from grading_app.results.scores import ConditionScore, count_missing, list_measures
from runs_app.models import Trial
from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
ITEMS = 20


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


REFUSED = {"status": "failed", "error_class": "content_refused", "answer": ""}


def make_quiz(right, others=None):
    """Return a quiz of models by name. `right[name]` are the positions with a right answer, `others[name]` are fields
    of other trials by position; None is a pending trial. All further answers are wrong.
    """
    experiment = factories.make_experiment(
        "quiz", dataset=factories.make_dataset("quiz-items", ITEMS), scorers=["numeric"],
        models=[factories.make_model(name) for name in right],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        name = run.condition.model.name
        fields = (others or {}).get(name, {})

        def answer(item, *_, name=name, fields=fields):
            return fields.get(item.position, item.target if item.position in right[name] else "-1")

        factories.plan_trials(run, answer=answer)
    return experiment


def list_trials(experiment, positions):
    return Trial.objects.filter(run__experiment=experiment, item__position__in=positions)


def get_scores(experiment, **query):
    board = compute_leaderboard(BoardQuery(experiment, **query))
    key = board.measures[0].key
    return board, {row.label.split(" ")[0]: row.scores[key] for row in board.rows}


def test_a_model_that_refuses_hard_items_is_not_the_best():
    """`refuser` answers 12 of 20 items, all right; `other` is right on 10 of 20."""
    refusals = {"refuser": dict.fromkeys(range(12, 20), REFUSED)}
    experiment = make_quiz({"refuser": range(12), "other": range(6, 16)}, refusals)
    grade(experiment, by="test")
    board, scores = get_scores(experiment)
    assert (scores["refuser"].mean, scores["refuser"].n, scores["refuser"].planned) == (1.0, 12, 20)
    assert scores["refuser"].missing_text == "8 refused"
    assert not any(board.is_best(row, board.measures[0]) for row in board.rows)
    lead = describe_lead(board, board.measures[0])
    assert "refuser" in lead
    assert "This depends on answers without a score: if they count as wrong, no difference is significant." in lead
    filled = get_scores(experiment, missing_is_wrong=True)[1]["refuser"]
    assert (filled.mean, filled.n, filled.planned, filled.missing) == (0.6, 20, 20, 8)


def test_a_condition_that_is_best_with_missing_answers_as_wrong_is_best():
    experiment = make_quiz({"strong": range(19), "weak": range(3)}, {"strong": {19: REFUSED}})
    grade(experiment, by="test")
    board, _ = get_scores(experiment)
    assert [row.label for row in board.rows if board.is_best(row, board.measures[0])] == ["strong"]


def test_every_planned_answer_without_a_score_has_one_reason(client):
    others = {
        0: None,
        2: {"status": "cancelled"},
        3: {"status": "failed", "error_class": "server", "error": "HTTP 500"},
        4: REFUSED,
        5: {"answer": "I cannot help with that.", "refused": True},
        6: {"answer": "Let me think about it", "truncated": True},
        7: {"answer": ""},
        8: {"answer": "no number"},
        19: None,
    }
    experiment = make_quiz({"model": range(20)}, {"model": others})
    grade(experiment, by="test")
    list_trials(experiment, [19]).update(**factories.build_done_fields(answer="after the grading"))
    (measure,) = list_measures(experiment)
    (reasons,) = count_missing(experiment, measure).values()
    assert reasons == {
        "refused": 2, "not run": 1, "cancelled": 1, "failed": 1, "truncated": 1, "empty": 1, "unreadable": 1,
        "not graded yet": 1,
    }  # fmt: skip
    (record,) = estimate_conditions(experiment)
    assert (record["n"], record["missing"]) == (11, 9)
    form = ScopeForm({}, experiment)
    (descriptives, _) = build_descriptive_tables(load_analysis_data(form.get_scope()))
    assert any(note.startswith("No score: model: 2 refused, 1 cancelled, 1 empty") for note in descriptives.notes)
    client.force_login(experiment.owner)
    text = page_text(client.get(reverse("experiment_results", args=[experiment.slug])))
    assert ">11 of 20</a>" in text
    assert "2 refused, 1 cancelled, 1 empty" in text


def test_a_stopped_run_shows_how_many_answers_are_not_graded():
    experiment = make_quiz({"model": range(2)}, {"model": dict.fromkeys(range(2, 20))})
    grade(experiment, by="test")
    list_trials(experiment, range(2, 20)).update(**factories.build_done_fields(answer="-1"))
    _, scores = get_scores(experiment)
    assert (scores["model"].mean, scores["model"].n, scores["model"].missing_text) == (1.0, 2, "18 not graded yet")


def test_no_difference_is_a_conclusion_that_says_if_it_depends_on_missing_answers(client):
    """On 12 common items, 12 and 9 answers are right (p = .250). All 20 of `whole` are right."""
    experiment = make_quiz({"stopped": range(9), "whole": range(20)}, {"stopped": dict.fromkeys(range(12, 20))})
    grade(experiment, by="test")
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=[experiment.slug]))
    (conclusion,) = page.context["screen"].conclusions
    assert conclusion.sentence == (
        "No reliable difference between whole and stopped on their common items (25.0 percentage points). "
        "This depends on answers without a score: if they count as wrong, whole is significantly higher than stopped."
    )
    assert not conclusion.is_certain


def test_compare_names_the_reasons_of_answers_without_a_score(client):
    fields = dict.fromkeys(range(12, 20), REFUSED) | {0: None}
    experiment = make_quiz({"refuser": range(12), "other": range(6, 16)}, {"refuser": fields})
    grade(experiment, by="test")
    client.force_login(experiment.owner)
    keys = dict(experiment.conditions.values_list("model__name", "pk"))
    address = f"{reverse('compare')}?a={experiment.slug}:{keys['refuser']}&b={experiment.slug}:{keys['other']}"
    assert "9 in A (8 refused, 1 not run), 0 in B." in page_text(client.get(address))


def test_a_row_of_a_figure_names_how_many_answers_have_a_score():
    assert ShareRow.of("refuser", ConditionScore(n=12, missing=8, mean=1.0)).name == "refuser (12 of 20)"
    assert ShareRow.of("other", ConditionScore(n=20, mean=0.5)).name == "other"
    assert ShareRow.of("filled", ConditionScore(n=20, missing=8, filled=8, mean=0.6)).name == "filled"
