"""Pairwise choices of people and judges: agreement, disagreements and win rates."""

import pytest
from django.core.cache import cache
from django.http import QueryDict

from grading_app.grading.rating import session
from grading_app.models import GradeCondition, Preference
from grading_app.results.raters import unit_counts
from grading_app.results.raters.grader_rows import list_grader_rows, list_standings
from grading_app.results.raters.rating_selection import RatingSelectionForm
from tests.factories.gradings import make_answered_experiment
from tests.factories.queues import make_answer_queue, make_rater, make_strict_rubric, rate_all, sign_in
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
ITEMS = 4
PAGE = "/experiments/duel/agreement/?units=pairs"


@shared_rows
def queue():
    """Return a queue of four pairs with choices by a judge and two people.

    The judge prefers the large model, whose condition is the first, in both orders; on the last pair the order decides.
    Rater 1 always prefers the large model. Rater 2 prefers the small model on item 0 and neither on item 1.
    """
    cache.clear()
    study = make_answered_experiment("duel", items=ITEMS, models=["small", "large"])
    rubric = make_strict_rubric("pairwise")
    created = make_answer_queue("choosing", experiment=study, dimensions=[], by=rubric)
    judge_all(study, rubric)
    for choice in (lambda place: "large", lambda place: ("small", "tie", "large", "large")[place]):
        rate_all(
            make_rater(created, started=True),
            lambda due, choice=choice: choose_by_model(due, choice(due.item.position)),
        )
    return created


def judge_all(study, rubric):
    condition = GradeCondition.objects.create(
        experiment=study, grade_condition_id="judge-a", kind="judge", rubric=rubric, parameters={}
    )
    large, small = ([*run.trials.order_by("item__position")] for run in study.runs.order_by("condition"))
    assert large[0].run.condition.model.name == "large"
    for place, (one, other) in enumerate(zip(large, small, strict=True)):
        for a, b in ((one, other), (other, one)):
            winner = "a" if a == one or place == ITEMS - 1 else "b"
            Preference.objects.create(
                condition=condition, trial_a=a, trial_b=b, winner=winner, reasoning="It is short."
            )


def choose_by_model(due, wanted):
    """Return 1 for the answer shown first, 2 for the other and 0 for a tie."""
    if wanted == "tie":
        return 0
    return 1 if due.trial.run.condition.model.name == wanted else 2


def read_selection(queue, query="units=pairs"):
    return RatingSelectionForm(QueryDict(query), queue.experiment).get_selection()


def list_choices(queue, query="units=pairs"):
    """Return the choices of each rater, in the order of the items."""
    selection = read_selection(queue, query)
    labels = {rater.key: rater.label for rater in selection.raters}
    choices_by_rater = {}
    for _, kind, n in sorted(unit_counts.load_unit_counts(selection).counts):
        for rater, value in unit_counts.load_unit_counts(selection).patterns[kind].items():
            choices_by_rater.setdefault(labels[rater], []).extend([value] * n)
    return choices_by_rater


def test_a_choice_counts_in_either_order_and_is_a_tie_if_the_order_decides(queue):
    judge = str(queue.experiment.grade_conditions.get(kind="judge"))
    assert list_choices(queue) == {judge: [1, 1, 1, 0.5], "rater 1": [1, 1, 1, 1], "rater 2": [0, 0.5, 1, 1]}


def test_the_first_answer_belongs_to_the_selected_condition(queue):
    small = queue.experiment.conditions.get(stage="generate", model__name="small").pk
    assert list_choices(queue, f"units=pairs&condition={small}")["rater 2"] == [1, 0.5, 0, 0]


def test_choices_are_measured_on_a_nominal_scale(queue, client):
    client.force_login(queue.experiment.owner)
    page = client.get(PAGE)
    measured = page.context["result"].report
    assert (measured.level, measured.shared) == ("nominal", ITEMS)
    lines = {line.name: line.estimate for line in measured.measures}
    assert list(lines) == ["Percent agreement", "Fleiss' kappa", "Krippendorff's alpha, nominal"]
    # Of three pairs of raters on each: 1, 1, 3 and 1 agree.
    assert lines["Percent agreement"].estimate == pytest.approx((1 + 1 + 3 + 1) / 12)
    assert lines["Krippendorff's alpha, nominal"].units == ITEMS
    against = measured.judge_comparison
    # Mean choice: judge 3.5 of 4, people 0.5, 0.75, 1, 1.
    assert against.bias.estimate == pytest.approx(3.5 / 4 - 3.25 / 4)
    assert (against.slope, against.limits, len(against.standings)) == (None, None, 1)
    assert "share of the other people with the same choice" in page.content.decode().lower()
    pairs = page.context["tables"]["rater_pairs"]["table"]
    assert [column.label for column in pairs.columns][-2:] == ["Same choice", "Kappa"]


@pytest.mark.slow
def test_the_confusion_matrix_of_two_raters_names_their_choices(queue, client):
    client.force_login(queue.experiment.owner)
    people = [rater.key for rater in read_selection(queue).raters if rater.kind == "person"]
    page = client.get(f"{PAGE}&first={people[0]}&second={people[1]}")
    table = page.context["figures"]["confusion"]["rows"]
    assert [str(cell) for cell in table.rows_of_text[-1]] == ["first", "1", "1", "2"]
    assert "differences" not in page.context["figures"]
    picture = client.get(page.context["figures"]["confusion"]["address"])
    assert picture["Content-Type"] == "image/svg+xml"


@pytest.mark.slow
def test_a_disagreement_links_to_both_answers_and_every_verdict(queue, client):
    client.force_login(queue.experiment.owner)
    page = client.get("/experiments/duel/disagreements/?units=pairs")
    assert '<a href="/experiments/duel/disagreements/" aria-current="page">' in page.content.decode()
    rows = page.context["rows"]
    assert [(row["item"].key, row["disagreement"].size) for row in rows] == [
        ("item-0", 1),
        ("item-1", 0.5),
        ("item-3", 0.5),
    ]
    assert len(rows[0]["answers"]) == 2
    address = f"/experiments/duel/disagreements/pairs/{rows[2]['disagreement'].unit}/?units=pairs"
    assert address.replace("?units=pairs", "") in page.content.decode()
    one = client.get(address)
    sides = {side.rater.kind_label: side for side in one.context["verdicts"]}
    assert sides["Judge"].text == "neither"
    assert "Shown first, second: the first. It is short." in sides["Judge"].reasoning
    assert "Shown second, first: the second. It is short." in sides["Judge"].reasoning
    assert (one.context["position"].rank, one.context["position"].total) == (3, 3)
    assert one.context["position"].previous == rows[1]["disagreement"].unit


@pytest.mark.slow
def test_a_pair_of_another_experiment_is_not_found(queue, client):
    client.force_login(queue.experiment.owner)
    make_answered_experiment("other", items=1)
    unit = Preference.objects.order_by("pk").first().pk
    assert client.get(f"/experiments/duel/disagreements/pairs/{unit}/").status_code == 200
    assert client.get(f"/experiments/other/disagreements/pairs/{unit}/").status_code == 404
    assert client.get("/experiments/duel/disagreements/pairs/999999/").status_code == 404


@pytest.mark.slow
def test_undone_choices_and_choices_of_excluded_raters_do_not_count(queue):
    session.undo(queue.assignments.get(number=1))
    assert len(list_choices(queue)["rater 1"]) == ITEMS - 1
    queue.assignments.get(number=2).exclude(by=queue.owner, reason="did not read")
    assert "rater 2" not in list_choices(queue)


@pytest.mark.slow
def test_wins_by_people_are_shown_beside_wins_by_judges_with_the_number_of_people(queue):
    study = queue.experiment
    message = {chooser.label: (chooser, ranking.value) for chooser, ranking in list_standings(list_grader_rows(study))}
    people, standing = message["people of choosing (strict-pairwise@1)"]
    assert (people.people, standing.comparisons, standing.items) == (2, 2 * ITEMS, ITEMS)
    assert standing.ranked[0].label == "large"
    assert (standing.bias.pairs, standing.bias.decided) == (0, 7)
    text = page_text(sign_in(study.owner).get("/experiments/duel/grading/"))
    assert "2 people, 8 verdicts on 4 items" in text
    assert f"−{-standing.ranked[1].strength:.2f}" in text
    assert len(message) == 2


@pytest.mark.slow
def test_the_page_selects_pairs_by_default_if_nothing_else_was_rated(queue, client):
    client.force_login(queue.experiment.owner)
    page = client.get("/experiments/duel/agreement/")
    assert page.context["selection"].in_pairs
    assert '<option value="pairs" selected>' in page.content.decode()
    queue_page = client.get(queue.get_absolute_url()).content.decode()
    assert "Alpha, nominal" in queue_page
    assert "ICC(2,1)" not in queue_page
    assert "Raters per pair" in queue_page
