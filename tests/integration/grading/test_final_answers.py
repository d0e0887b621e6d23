"""Final answers of parametric tasks: stored details of gradings, and context limits set after generation."""

import pytest

from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from grading_app.grading import scoring
from grading_app.grading.scoring import grade, grade_trials
from grading_app.models import GradeCondition, Grading
from runs_app.models import Trial
from runs_app.scorers.scoring_rules import read_rule
from tests import factories

pytestmark = pytest.mark.django_db
SPACE = "name: n\ntasks: [{name: shuffle, params: {length: 3, count: 4}}]"


@pytest.fixture
def answered_experiment():
    dataset = create_parametric_dataset(resolve_space(read_space(SPACE)), SpaceFiles(SPACE), slug="shuffled", by="test")
    factories.datasets.approve(dataset)
    experiment = factories.make_experiment(dataset=dataset, scorers=["final_answer"])
    (run,) = factories.make_runs(experiment, status="done")

    def answer(item, *_):
        number = item.metadata["number"]
        other = next(choice for choice in item.choices if choice != item.target)
        return [
            {"answer": f"So.\nFinal Answer: {item.target} Lola", "output_tokens": 10},
            {"answer": f"Final Answer: {other}", "output_tokens": 300},
            {"answer": f"Final Answer: {item.target}", "output_tokens": 300},
            {"answer": "Let me think about the first swap", "output_tokens": 400, "truncated": True},
        ][number]

    factories.plan_trials(run, answer=answer)
    return experiment


def grade_all(scorer="final_answer", **parameters):
    rows = Grading.objects.filter(condition__scorer=scorer, condition__parameters=parameters).order_by(
        "trial__item__key"
    )
    return list(rows)


def test_each_grading_stores_the_parsed_answer_and_its_validity(answered_experiment):
    (report,) = grade(answered_experiment, by="test")
    first, second, third, last = grade_all()
    assert [row.score for row in (first, second, third, last)] == [1, 0, 1, None]
    assert first.score_raw == first.detail["extracted"] == first.trial.item.target
    assert first.detail["normalised"] == f"{first.trial.item.target} Lola"
    assert (first.detail["valid"], first.detail["correct"], first.detail["truncated"]) == (True, True, False)
    assert (second.detail["valid"], second.detail["correct"]) == (True, False)
    assert (last.parse_ok, last.parse_error, last.detail["truncated"]) == (False, "truncated", True)
    assert (last.detail["extracted"], last.detail["valid"]) == (None, False)
    assert dict(report.unread) == {"truncated": 1}


def test_a_context_limit_set_afterwards_counts_longer_answers_as_truncated_without_a_new_call(answered_experiment):
    grade(answered_experiment, by="test")
    calls = Trial.objects.count()
    grade(answered_experiment, scorers=["final_answer:100"], by="test")
    assert [row.score for row in grade_all(limit="100")] == [1, None, None, None]
    assert [row.detail["truncated"] for row in grade_all(limit="100")] == [False, True, True, True]
    assert [row.score for row in grade_all()] == [1, 0, 1, None]
    assert Trial.objects.count() == calls


def test_regrading_replaces_details_and_shortens_long_texts(answered_experiment, monkeypatch):
    grade(answered_experiment, by="test")
    monkeypatch.setattr(scoring, "MAX_RAW_LENGTH", 3)
    grade(answered_experiment, force=True, by="test")
    first = grade_all()[0]
    assert first.detail["normalised"] == first.trial.item.target


def test_a_round_of_an_adaptive_run_is_graded_with_the_same_details(answered_experiment):
    trials = list(Trial.objects.order_by("item__key").values_list("pk", flat=True))
    condition = grade_trials(answered_experiment, read_rule("final_answer"), trials)
    assert GradeCondition.objects.get(pk=condition).scorer == "final_answer"
    assert [row.detail["correct"] for row in grade_all()] == [True, False, True, False]
