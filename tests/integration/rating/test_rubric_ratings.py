"""Ratings by a judge's rubric: they become gradings through the function that reads judge replies."""

import csv
import io
import json
import re

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from grading_app.grading.judging.verdicts import read_verdict
from grading_app.grading.rating import queue_results, queues, session
from grading_app.grading.rating.questions import build_rubric_questions
from grading_app.grading.rating.queues import draw_pairs
from grading_app.models import GradeCondition, Grading, Preference, Rating, Rubric
from grading_app.models.rating import QueueError
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.raters.pairwise_stats import compute_standing
from grading_app.views.library_previews import list_gradings
from runs_app.models import Trial
from tests import factories
from tests.factories.gradings import make_answered_experiment
from tests.factories.queues import make_rater, make_rubric_queue, make_strict_rubric, rate_all, sign_in

pytestmark = pytest.mark.django_db
CRITERIA = [
    {"name": "correct", "description": "Agrees with the reference answer", "weight": 3},
    {"name": "complete", "description": "Leaves nothing out"},
]
LABELS = [{"name": "wrong", "score": 0}, {"name": "partly", "score": 0.25}, {"name": "right", "score": 1}]
KINDS = {
    "criteria": {"criteria": CRITERIA},
    "label": {"labels": LABELS},
    "score": {"scale_min": 1, "scale_max": 5},
    "pairwise": {},
}


def alternate_value(rating):
    """Return a value that alternates between answers and is reversed for the second criterion."""
    return float((rating.trial_id + bool(rating.criterion == "complete")) % 2)


# --- one function for people and judges ------------------------------------------------------------------------------


@given(met=st.lists(st.booleans(), min_size=2, max_size=2))
def test_criteria_weights_apply_to_people_as_to_judges(met):
    rubric = Rubric(kind="criteria", criteria=CRITERIA)
    verdict = rubric.build_verdict_object({"correct": float(met[0]), "complete": float(met[1])})
    assert read_verdict(json.dumps(verdict), rubric.content).score == pytest.approx((3 * met[0] + met[1]) / 4)


@pytest.mark.parametrize("kind", ["criteria", "label", "score", "pairwise"])
def test_every_choice_on_the_page_is_a_valid_verdict(kind):
    rubric = Rubric(kind=kind, **KINDS[kind])
    for question in build_rubric_questions(rubric):
        assert len({point.key for point in question.points}) == len(question.points)
        for point in question.points:
            assert question.accepts(point.value)
            values = {one.key[1]: point.value for one in build_rubric_questions(rubric)}
            assert not read_verdict(json.dumps(rubric.build_verdict_object(values)), rubric.content).error


def test_rating_all_criteria_creates_the_same_grading_as_a_judges_reply():
    queue = make_rubric_queue()
    rater = make_rater(queue, started=True)
    first = rater.find_next_rating()
    assert (first.criterion, first.dimension) == ("correct", None)
    session.rate(rater, position=1, value=1, seconds=1)
    assert not Grading.objects.exists()
    session.rate(rater, position=2, value=0, seconds=1)
    grading = Grading.objects.select_related("condition").get()
    reply = json.dumps({"criteria": {"correct": True, "complete": False}})
    judged = read_verdict(reply, queue.rubric.content)
    assert (grading.score, grading.detail, grading.score_raw) == (judged.score, judged.detail, judged.raw)
    assert (grading.trial_id, grading.score) == (first.trial_id, 0.75)
    assert (grading.condition.kind, grading.condition.rubric, grading.parse_ok) == ("person", queue.rubric, True)
    (use,) = list_gradings(queue.rubric, queue.owner)
    assert (use.assignment, vars(use)["n_verdicts"]) == (rater, 1)


def test_undo_removes_the_grading_until_the_answer_is_rated_again():
    rater = make_rater(make_rubric_queue(), started=True)
    for position in (1, 2):
        session.rate(rater, position=position, value=1, seconds=1)
    session.undo(rater)
    assert not Grading.objects.exists()
    session.rate(rater, position=2, value=0, seconds=1)
    assert Grading.objects.get().score == 0.75
    session.undo(rater)
    session.undo(rater)
    session.rate(rater, position=1, value=0, seconds=1)
    session.rate(rater, position=2, value=0, seconds=1)
    assert Grading.objects.get().score == 0


@pytest.mark.parametrize(("kind", "value", "score"), [("label", 2, 0.25), ("label", 3, 1), ("score", 4, 4)])
def test_labels_and_scores_are_graded_like_a_judges(kind, value, score):
    rater = make_rater(make_rubric_queue(kind), started=True)
    rate_all(rater, value)
    assert set(Grading.objects.values_list("score", flat=True)) == {score}
    assert Grading.objects.count() == 8


def test_fractional_scores_can_be_typed_if_a_judge_could_give_them():
    rubric = make_strict_rubric("score", scale_min=0, scale_max=1)
    queue = make_rubric_queue(rubric=rubric)
    rater = make_rater(queue, started=True)
    client, address = sign_in(rater.user), f"/ratings/{queue.name}/"
    shown_value = read_page(client, address).split('name="shown" value="')[1].split('"')[0]
    for value in ("1.5", "nan", "inf", "x"):
        client.post(f"{address}rate/", {"shown": shown_value, "rating": value})
    assert not Rating.objects.given().exists()
    client.post(f"{address}rate/", {"shown": shown_value, "rating": "0,12345678"})
    assert Grading.objects.get().score == 0.12345678
    (export_rows,) = csv.DictReader(io.StringIO("".join(queue_results.iterate_csv_lines(queue))))
    assert export_rows["rating"] == "0.12345678"


def read_page(client, address):
    """Return the page's HTML without the line breaks of its template."""
    return re.sub(r"\n\s*", " ", client.get(address).content.decode())


def test_practice_and_attention_checks_create_no_gradings():
    queue = make_rubric_queue(practice_items=1, attention_checks={"item-3": [1]})
    rater = make_rater(queue, started=True)
    rate_all(rater, lambda rating: 0 if rating.criterion == "complete" else 1)
    assert Grading.objects.count() == 2 * 2
    (line,) = queue_results.list_rater_progress(queue)
    assert (line.passed, line.checked, line.failed) == (1, 2, ("item-3",))


def test_excluding_a_rater_deletes_their_gradings_but_keeps_their_ratings():
    queue = make_rubric_queue()
    rater = make_rater(queue, started=True)
    rate_all(rater, 1)
    rater.exclude(by=queue.owner, reason="did not read")
    assert not Grading.objects.exists()
    assert Rating.objects.given().count() == 16
    assert queue.experiment.history.filter(aspect="gradings").exists()


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_the_order_within_a_pair_is_drawn_for_each_rater():
    # With 40 items, equal orders of two raters are practically impossible.
    queue = make_rubric_queue("pairwise", items=40)
    raters = [make_rater(queue, started=True) for _ in range(2)]
    orders = [{frozenset((r.trial_id, r.rival_id)): r.trial_id for r in rater.ratings.all()} for rater in raters]
    assert orders[0].keys() == orders[1].keys()
    assert len(orders[0]) == 40
    assert orders[0] != orders[1]
    runs = dict(Trial.objects.values_list("pk", "run"))
    assert len({runs[first] for first in orders[0].values()}) == 2


@pytest.mark.slow
def test_a_preference_names_the_winner_in_either_order():
    queue = make_rubric_queue("pairwise", items=6)
    large = queue.experiment.conditions.get(model__name="large")

    def prefers_large(rating):
        return 1 if rating.trial.run.condition_id == large.pk else 2

    for _ in range(2):
        rate_all(make_rater(queue, started=True), prefers_large)
    assert Preference.objects.count() == 12
    assert {get_winner(one).run.condition_id for one in Preference.objects.all()} == {large.pk}
    condition = GradeCondition.objects.filter(kind="person").first()
    labels = {one.pk: one.model.name for one in queue.experiment.conditions.all()}
    assert compute_standing([condition], labels).ranked[0].label == "large"
    (line,) = queue_results.list_question_results(queue)
    assert (line.n, line.items, line.raters) == (12, 6, 2)
    assert queue_results.count_complete(queue) == (6, 6)
    client, study = sign_in(queue.owner), queue.experiment.slug
    assert "Strict pairwise (rater 2 of reading)" in read_page(client, f"/experiments/{study}/grading/")
    assert "6 of 6 pairs have 2 raters" in read_page(client, queue.get_absolute_url())
    assert client.get(f"/experiments/{study}/agreement/").status_code == 200
    assert "This answer" in read_page(client, f"/trials/{Preference.objects.filter(winner='a').first().trial_a_id}/")


def get_winner(preference):
    return preference.trial_a if preference.winner == "a" else preference.trial_b


def test_undoing_a_rating_removes_its_preference():
    rater = make_rater(make_rubric_queue("pairwise"), started=True)
    session.rate(rater, position=1, value=0, seconds=1)
    assert Preference.objects.get().winner == "tie"
    session.undo(rater)
    assert not Preference.objects.exists()


def test_pairs_join_every_two_different_conditions_of_an_item():
    cells = {(1, c, None): [(10 * c + n, 1) for n in range(3)] for c in (1, 2, 3)} | {(2, 1, None): [(99, 2)]}
    pairs = draw_pairs(cells, 2, seed=1)
    assert len(pairs) == 3 * 2
    assert all(trial // 10 != rival // 10 and item == 1 for trial, rival, item in pairs)


def test_pairs_without_a_second_condition_are_refused_with_the_reason():
    study = make_answered_experiment("alone", models=["small"])
    queue = make_rubric_queue("pairwise", experiment=study, opened=False)
    with pytest.raises(QueueError, match="no item outside practice has answers of two conditions"):
        queues.open_queue(queue, by=queue.owner, reason="")


# --- frozen rows, refusals and exports -------------------------------------------------------------------------------


def test_a_rubric_used_by_a_queue_cannot_change():
    queue = make_rubric_queue()
    for statement in ("UPDATE grading_app_rubric SET criteria = '[]'", "DELETE FROM grading_app_rubric",
                      "UPDATE grading_app_rubric SET status = 'draft'"):  # fmt: skip
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        type(queue).objects.filter(pk=queue.pk).update(rubric=None)


def test_the_database_refuses_to_open_a_queue_with_a_draft_rubric():
    queue = make_rubric_queue(rubric=make_strict_rubric(status="draft"), opened=False)
    with pytest.raises(IntegrityError, match="approve it first"), transaction.atomic():
        type(queue).objects.filter(pk=queue.pk).update(status="open")
    with pytest.raises(QueueError, match="a curator must approve it"):
        queues.open_queue(queue, by=queue.owner, reason="")


@pytest.mark.parametrize(("kind", "value"), [("criteria", 2), ("criteria", 0.5), ("label", 4), ("label", 0),
                                             ("score", 5.5), ("pairwise", 3)])  # fmt: skip
def test_the_database_refuses_values_outside_the_rubrics_scale(kind, value):
    rater = make_rater(make_rubric_queue(kind), started=True)
    with pytest.raises(session.RatingError, match="not on the scale"):
        session.rate(rater, position=1, value=value, seconds=1)
    with pytest.raises(IntegrityError, match="not on the scale"), transaction.atomic():
        rater.ratings.filter(position=1).update(value=value, seconds=1, rated_at=factories.NOON)


def test_a_queue_needs_either_dimensions_or_a_rubric():
    queue = make_rubric_queue(opened=False)
    queue.dimensions.set([factories.make_dimension("goodness")])
    with pytest.raises(QueueError, match="remove one of them"):
        queues.open_queue(queue, by=queue.owner, reason="")
    queue.dimensions.clear()
    queue.rubric = None
    queue.save()
    with pytest.raises(QueueError, match="choose dimensions, or a rubric"):
        queues.open_queue(queue, by=queue.owner, reason="")


@pytest.fixture
def form_data():
    return {"name": "strictly", "title": "Read", "instructions": "Read.", "raters_wanted": 2, "practice_items": 0,
            "answers_each": 1, "sample_seed": 7}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "verdict"),
    [
        ({}, "dimensions", "Choose dimensions or a rubric"),
        ({"rubric": "pairwise", "attention_checks": "item-1 = 1"}, "attention_checks", "Not possible for pairs"),
        ({"rubric": "criteria", "attention_checks": "item-1 = 2"}, "attention_checks", "must be on the scale"),
        ({"rubric": "criteria", "one_dimension_per_rater": "on"}, "one_dimension_per_rater", "all of its criteria"),
        ({"rubric": "texts"}, "text_set", "has no item rubrics"),
        ({"rubric": "draft"}, "rubric", "not one of the available"),
    ],
)  # fmt: skip
def test_a_form_error_appears_at_its_field(form_data, fields, field, verdict):
    study = make_answered_experiment()
    rubrics = {
        "pairwise": lambda: make_strict_rubric("pairwise"),
        "criteria": make_strict_rubric,
        "texts": lambda: make_strict_rubric(text="{{item_rubric}}"),
        "draft": lambda: make_strict_rubric(status="draft"),
    }
    chosen = {**fields, "rubric": rubrics[fields["rubric"]]().pk} if "rubric" in fields else fields
    page = sign_in(study.owner).post(f"/experiments/{study.slug}/ratings/new/", {**form_data, **chosen})
    assert verdict in " ".join(page.context["form"].errors[field])


@pytest.mark.slow
def test_a_rubric_queue_is_created_opened_and_shows_how_many_raters_are_missing(form_data):
    study, rubric = make_answered_experiment(models=["small", "large"]), make_strict_rubric()
    client = sign_in(study.owner)
    page = client.get(f"/experiments/{study.slug}/ratings/new/")
    assert page.context["cancel_url"] == f"/experiments/{study.slug}/agreement/"
    response = client.post(f"/experiments/{study.slug}/ratings/new/", {**form_data, "rubric": rubric.pk})
    client.post(f"{response['Location']}open/", {"reason": "ready"})
    queue = study.rating_queues.get()
    assert (queue.status, queue.rubric, queue.answers.count()) == ("open", rubric, 24)
    assert "Create 2 more links" in read_page(client, response["Location"])
    make_rater(queue)
    assert "Create 1 more link," in read_page(client, response["Location"])
    make_rater(queue)
    assert "more link" not in read_page(client, response["Location"])


@pytest.mark.slow
def test_the_queue_page_shows_criteria_totals_checks_and_seconds():
    queue = make_rubric_queue(attention_checks={"item-3": [1]})
    for _ in range(2):
        rate_all(make_rater(queue, started=True), alternate_value)
    lines = {line.name: line for line in queue_results.list_question_results(queue)}
    assert list(lines) == ["correct", "complete", "in total"]
    totals = list(Grading.objects.values_list("score", flat=True))
    assert lines["in total"].mean == pytest.approx(sum(totals) / len(totals))
    assert (lines["in total"].n, lines["correct"].n, lines["correct"].alpha.estimate) == (12, 12, 1)
    text = read_page(sign_in(queue.owner), queue.get_absolute_url())
    for label in ("strict-criteria@1", "in total", "failed: item-3", "Median time (s)", "1.5"):
        assert label in text


def test_exports_contain_the_rubric_with_the_ratings():
    queue = make_rubric_queue(items=2)
    rate_all(make_rater(queue, started=True), alternate_value)
    by_rubric = {"rubric": queue.rubric.name, "rubric_hash": queue.rubric.content_hash}
    gradings = export_rows(queue, "gradings")
    assert len(gradings) == 4
    for row in gradings:
        assert by_rubric.items() <= row.items()
        assert (row["grader"], row["parse_ok"], row["grade_cost_usd"]) == ("reading rater 1", True, 0)
    assert {row["score"] for row in gradings} == set(Grading.objects.values_list("score", flat=True))
    ratings = export_rows(queue, "ratings")
    assert {row["rated_on"] for row in ratings} == {"correct", "complete"}
    assert all(by_rubric.items() <= row.items() for row in ratings)
    rows = list(csv.DictReader(io.StringIO("".join(queue_results.iterate_csv_lines(queue)))))
    assert {(row["criterion"], row["rating"]) for row in rows} <= {
        (c, v) for c in ("correct", "complete") for v in "01"
    }
    assert {row["rubric_hash"] for row in rows} == {queue.rubric.content_hash}


def test_preferences_are_exported_with_both_answers():
    assert not list_offered_tables(make_answered_experiment("unrated")) & {"preferences", "ratings"}
    queue = make_rubric_queue("pairwise", items=2)
    rate_all(make_rater(queue, started=True), 1)
    rows = export_rows(queue, "preferences")
    assert {(row["winner"], row["grader"], row["grade_cost_usd"]) for row in rows} == {("a", "reading rater 1", 0)}
    assert {row["model"] for row in rows} | {row["rival_model"] for row in rows} == {"small", "large"}
    assert list_offered_tables(queue.experiment) >= {"preferences", "ratings"}


def list_offered_tables(experiment):
    """Return the tables that the page of files offers."""
    page = sign_in(experiment.owner).get(f"/experiments/{experiment.slug}/files/")
    return {export["address"].split("/")[-1].split(".")[0] for export in page.context["exports"]}


def export_rows(queue, table):
    return [
        json.loads(line) for line in b"".join(export_chunks(queue.experiment, table, "jsonl")).decode().splitlines()
    ]
