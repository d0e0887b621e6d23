"""Agreement of people and judges with the same rubric, in total and by criterion."""

import pytest
from django.core.cache import cache
from django.http import QueryDict

from grading_app.grading.rating import session
from grading_app.models import GradeCondition, Grading
from grading_app.models.gradings import allow_superseding
from grading_app.results.raters import unit_counts
from grading_app.results.raters.rating_selection import RatingSelectionForm
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.queues import make_answer_queue, make_rater, make_strict_rubric, rate_all
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def queue():
    """Return a queue with two people who differ on completeness; a judge finds all correct and nothing complete."""
    cache.clear()
    study = make_answered_experiment("people", items=4, models=["small"])
    rubric = make_strict_rubric()
    make_gradings(study, "judge-a", lambda trial: 0.75, rubric=rubric)
    with allow_superseding():
        Grading.objects.update(detail={"criteria": {"correct": True, "complete": False}})
    created = make_answer_queue("reading", experiment=study, dimensions=[], by=rubric)
    for complete in (1, 0):
        rate_all(make_rater(created, started=True), lambda due, c=complete: 1 if due.criterion == "correct" else c)
    return created


def read_selection(queue, query=""):
    return RatingSelectionForm(QueryDict(query), queue.experiment).get_selection()


def list_values(queue, query=""):
    selection = read_selection(queue, query)
    labels = {rater.key: rater.label for rater in selection.raters}
    expected = unit_counts.load_unit_counts(selection).patterns.values()
    return {(labels[rater], value) for kind in expected for rater, value in kind.items()}


def get_judge_label(queue):
    return str(queue.experiment.grade_conditions.get(kind="judge"))


def test_total_scores_of_people_and_judges_share_one_scale_by_default(queue):
    total = list_values(queue)
    assert {(label, value) for label, value in total if "rater" in label} == {("rater 1", 1.0), ("rater 2", 0.75)}
    assert 0.75 in {value for label, value in total if "rater" not in label}
    assert not read_selection(queue).scales_differ


@pytest.mark.parametrize(("criterion", "expected"), [("correct", [1, 1, 1]), ("complete", [1, 0, 0])])
def test_each_criterion_is_compared_separately(queue, criterion, expected):
    selection = read_selection(queue, f"units=criterion:{queue.rubric_id}:{criterion}")
    assert selection.criterion == criterion
    assert {rater.kind for rater in selection.raters} == {"judge", "person"}
    people = {(label, value) for label, value in list_values(queue, f"units=criterion:{queue.rubric_id}:{criterion}")}
    assert [dict(people)["rater 1"], dict(people)["rater 2"]] == expected[:2]
    assert [value for label, value in people if "rater" not in label] == expected[2:]


@pytest.mark.slow
def test_pages_of_a_criterion_open_without_an_adjudication_form(queue, client):
    client.force_login(queue.experiment.owner)
    query = f"units=criterion:{queue.rubric_id}:complete"
    page = client.get(f"/experiments/people/agreement/?{query}")
    assert page.context["result"].report.shared == 4
    assert "Answers, on complete of strict-criteria@1" in page.content.decode()
    (row, *_) = client.get(f"/experiments/people/disagreements/?{query}").context["rows"]
    assert sorted(side.value for side in row["verdicts"]) == [0, 0, 1]
    one = client.get(f"/experiments/people/disagreements/{row['trial'].pk}/?{query}").context
    assert sorted(side.value for side in one["verdicts"]) == [0, 0, 1]
    assert one["forms"] == []
    assert client.get(f"/experiments/people/disagreements/{row['trial'].pk}/").context["forms"]


@pytest.mark.slow
def test_a_change_of_units_selects_their_own_raters(queue, client):
    """The submitted choice of raters belongs to the previous units and is ignored."""
    client.force_login(queue.experiment.owner)
    other = GradeCondition.objects.create(
        experiment=queue.experiment, grade_condition_id="exact_match--1", scorer="exact_match"
    )
    Grading.objects.create(condition=other, trial=queue.answers.first().trial, score=1, parse_ok=True)
    address = f"/experiments/people/agreement/?units=criterion:{queue.rubric_id}:complete&rater=g{other.pk}"
    assert client.get(address).context["selection"] is None
    selection = client.get(f"{address}&of=answers").context
    assert (selection["selection"].criterion, len(selection["selection"].raters)) == ("complete", 3)
    assert f'name="of" value="criterion:{queue.rubric_id}:complete"' in client.get(address).content.decode()


@pytest.mark.slow
def test_a_verdict_that_changed_changes_the_page(queue, client):
    client.force_login(queue.experiment.owner)
    address = f"/experiments/people/agreement/?units=criterion:{queue.rubric_id}:complete"
    before = client.get(address).context["result"].report.coverage
    rater = queue.assignments.get(number=2)
    session.undo(rater)
    rate_all(rater, 1)
    after = client.get(address).context["result"].report.coverage
    assert sum(one.mean for one in after) > sum(one.mean for one in before)


def test_an_excluded_rater_is_not_offered(queue):
    queue.assignments.get(number=1).exclude(by=queue.owner, reason="did not read")
    assert {label for label, _ in list_values(queue)} >= {"rater 2"}
    assert "rater 1" not in {label for label, _ in list_values(queue)}


@pytest.mark.slow
def test_results_and_the_grading_page_include_people_as_graders(queue, client):
    client.force_login(queue.experiment.owner)
    session.undo(queue.assignments.get(number=2))
    lines = client.get("/experiments/people/results/").context["results"].summary.lines
    people = [line for line in lines if "people of" in line.measure.label]
    # Of four answers one person gave 1, the other 0.75 on three of them.
    assert [(line.measure.label, line.score.n) for line in people] == [
        ("Strict criteria (people of reading, mean of 1 to 2 raters per answer)", 4)
    ]
    assert people[0].score.mean == pytest.approx((3 * 0.875 + 1) / 4)
    page = client.get("/experiments/people/grading/")
    assert "Strict criteria (rater 1 of reading)" in page.content.decode()
