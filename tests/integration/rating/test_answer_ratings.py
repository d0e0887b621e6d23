"""Ratings of model answers: the draw, the presentation order and the results."""

import csv
import io
import json
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from django.db import IntegrityError, connection, transaction
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib import permissions
from evalsite.lib.history import TransitionError
from grading_app.forms.rating import AnswerQueueForm
from grading_app.forms.rubrics import RubricPreviewForm
from grading_app.grading.judging.judging_costs import AnswerSelection
from grading_app.grading.judging.rubric_preview import RubricPreview
from grading_app.grading.rating import queue_results, queues, session
from grading_app.grading.rating.queue_results import make_norms
from grading_app.grading.rating.queues import draw_keys, draw_single_answers
from grading_app.grading.rating.session import SessionItems, shuffle_with_spacing
from grading_app.models import Grader, RatedAnswer, Rating, RatingQueue
from grading_app.models.rating import QueueError
from grading_app.publish.export.file_formats import export_chunks
from runs_app import deletion
from runs_app.models import Trial
from runs_app.models.conditions import load_labels
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_rater, rate_all, sign_in
from tests.factories.tampering import allow_deletions
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
GOOD = {"title": "Good answer", "instructions": "How good is this answer?", "low": 1, "high": 5}


# --- drawn answers ---------------------------------------------------------------------------------------------------


def test_each_drawn_item_has_equally_many_answers_from_every_condition():
    queue = make_answer_queue(sample_items=4)
    draw_trials = RatedAnswer.objects.filter(queue=queue).values_list("item", "trial__run__condition")
    assert len({item for item, _ in draw_trials}) == 4
    assert set(Counter(draw_trials).values()) == {1}
    assert len(draw_trials) == 8


def test_equal_seeds_draw_the_same_answers_and_different_seeds_do_not():
    study = make_answered_experiment(items=20, models=["small", "large"], samples=3)
    dimension = factories.make_dimension("goodness", **GOOD)

    def draw_trials(name, seed):
        fields = {"experiment": study, "sample_items": 8, "sample_seed": seed, "dimensions": [dimension]}
        return set(make_answer_queue(name, **fields).answers.values_list("trial", flat=True))

    assert draw_trials("first", 1) == draw_trials("second", 1)
    assert draw_trials("third", 2) != draw_trials("fourth", 1)


def test_only_existing_answers_of_selected_conditions_are_drawn():
    study = make_answered_experiment(items=4, models=["small", "large"])
    small = study.conditions.get(model__name="small")
    queue = make_answer_queue(experiment=study, conditions=[small], opened=False)
    run = small.runs.get()
    with allow_deletions():
        run.trials.filter(item__key="item-0").delete()
    queues.open_queue(queue, by=queue.owner, reason="ready")
    assert {one.trial.run_id for one in queue.answers.select_related("trial")} == {run.pk}
    assert sorted(one.item.key for one in queue.answers.select_related("item")) == ["item-1", "item-2", "item-3"]


BLANK = ("", "   ", "\n\t \r\n")


def test_blank_answers_are_never_rated_judged_or_previewed():
    """Check that raters, judges and rubric previews follow one rule."""
    study = factories.make_experiment("blanks", dataset=factories.make_dataset("blanks", 6))
    (run,) = factories.make_runs(study)
    factories.plan_trials(run, answer=lambda item, *_: (*BLANK, "said", " said ", "\n0")[item.position])
    expected = {"item-3", "item-4", "item-5"}
    queue = make_answer_queue(experiment=study)
    assert {one.item.key for one in queue.answers.select_related("item")} == expected
    assert {trial.item.key for trial in Trial.objects.with_text().select_related("item")} == expected
    rubric = make_scale_rubric()
    tried = RubricPreview(rubric, study, factories.make_model(), study.samplers.get())
    assert {trial.item.key for trial, _ in tried.select_answers()} == expected
    judge = Grader(name="j", language_model=tried.model, rubric=rubric, sampler=tried.sampler)
    selection = AnswerSelection(study, judge, run.wave)
    assert (selection.counts.empty, selection.count_verdicts()[0]) == (3, 3)
    form = RubricPreviewForm({"experiment": study.pk}, user=study.owner)
    assert form.is_valid()
    assert form.fetch_answers(in_pairs=False)[0].item.key == "item-3"


def test_empty_answers_are_never_drawn():
    study = factories.make_experiment("gaps", dataset=factories.make_dataset("gaps", 4))
    (run,) = factories.make_runs(study)
    factories.plan_trials(run, answer=lambda item, *_: None if item.position == 3 else "x" * item.position)
    queue = make_answer_queue(experiment=study)
    assert sorted(one.item.position for one in queue.answers.select_related("item")) == [1, 2]


def test_practice_items_and_checks_get_one_answer_each_and_no_normal_rating():
    queue = make_answer_queue(practice_items=1, attention_checks={"item-3": [1]})
    kinds = Counter(queue.answers.values_list("kind", flat=True))
    assert kinds == {"practice": 1, "check": 1, "item": 8}
    items = {kind: set(queue.answers.filter(kind=kind).values_list("item__key", flat=True)) for kind in kinds}
    assert items["practice"] == {"item-0"}
    assert items["check"] == {"item-3"}
    assert not items["item"] & {"item-0", "item-3"}


def test_a_queue_without_an_answer_to_rate_is_refused():
    study = factories.make_experiment("waiting")
    for run in factories.make_runs(study):
        factories.plan_trials(run)
    queue = make_answer_queue(experiment=study, opened=False)
    with pytest.raises(QueueError, match="no answer is left to rate"):
        queues.open_queue(queue, by=queue.owner, reason="")
    queue.refresh_from_db()
    assert queue.status == "draft"
    assert not queue.answers.exists()


def test_drawn_answers_cannot_change():
    queue = make_answer_queue()
    statements = [
        "DELETE FROM grading_app_ratedanswer",
        "UPDATE grading_app_ratedanswer SET kind = 'check'",
        f"INSERT INTO grading_app_ratingqueue_conditions (ratingqueue_id, condition_id) VALUES ({queue.pk}, 1)",
    ]
    for statement in statements:
        refused = pytest.raises(IntegrityError, match="keeps the answers")
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    queue.close(by=queue.owner, reason="")
    before = set(queue.answers.values_list("trial", flat=True))
    queues.open_queue(queue, by=queue.owner, reason="again")
    assert set(queue.answers.values_list("trial", flat=True)) == before


def test_an_experiment_with_rated_answers_cannot_be_deleted():
    queue = make_answer_queue()
    rate_all(make_rater(queue, started=True))
    study = queue.experiment
    study.runs.update(status="done")
    with pytest.raises(TransitionError, match="rating queue"):
        deletion.delete(study, by=queue.owner)
    assert Rating.objects.given().count() == 12


@pytest.mark.slow
@given(st.lists(st.integers(0, 99), unique=True), st.integers(1, 50), st.integers(0, 9))
def test_a_sample_is_a_subset_and_independent_of_order(keys, n, seed):
    drawn_keys = draw_keys(keys, n, seed=seed)
    assert set(drawn_keys) <= set(keys)
    assert len(drawn_keys) == min(n, len(keys))
    assert drawn_keys == draw_keys(keys[::-1], n, seed=seed)
    assert draw_keys(keys, None, seed=seed) == sorted(keys)


@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 6), min_size=1), st.integers(1, 4)
)
def test_each_cell_contributes_up_to_the_requested_number_of_answers(sizes, each):
    cells = {(item, model, None): [(100 * item + 10 * model + at, item) for at in range(size)]
             for (item, model), size in sizes.items()}  # fmt: skip
    drawn_keys = draw_single_answers(cells, each, seed=3)
    assert len(drawn_keys) == sum(min(each, size) for size in sizes.values())
    assert len(set(drawn_keys)) == len(drawn_keys)
    one = next(iter(cells))
    alone = draw_single_answers({one: cells[one]}, each, seed=3)
    assert set(alone) <= set(drawn_keys), "what is drawn of one cell does not depend on the others"


# --- the order -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.integers(0, 999))
def test_answers_to_one_item_are_adjacent_only_if_unavoidable(groups, seed):
    group_by_key = dict(enumerate(groups))
    list_order = shuffle_with_spacing(list(group_by_key), group_by_key, Random(seed))
    assert sorted(list_order) == sorted(group_by_key)
    largest = max(Counter(groups).values())
    neighbours = sum(group_by_key[one] == group_by_key[other] for one, other in pairwise(list_order))
    assert neighbours == max(0, 2 * largest - 1 - len(groups))


def test_each_seed_gives_a_different_but_reproducible_order():
    group_by_key = {key: key // 3 for key in range(30)}
    material = SessionItems([], list(group_by_key), [], group_by_key)

    def list_order(seed):
        return [step.item for step in material.order_steps([1], seed=seed, in_blocks=False)]

    assert list_order(4) == list_order(4)
    assert len({tuple(list_order(seed)) for seed in range(40)}) == 40


def test_all_answers_are_equally_likely_to_be_first():
    group_by_key = {key: key // 2 for key in range(10)}
    firsts = Counter(shuffle_with_spacing(list(group_by_key), group_by_key, Random(seed))[0] for seed in range(2000))
    assert len(firsts) < 6  # Keys stay in order: each group starts with its first key; groups are in random order.
    material = SessionItems([], list(group_by_key), [], group_by_key)
    shuffled = Counter(material.order_steps([1], seed=seed, in_blocks=False)[0].item for seed in range(2000))
    assert max(shuffled.values()) < 300  # 200 are expected; seven standard deviations are 294.


# --- a session -------------------------------------------------------------------------------------------------------


def test_a_session_has_every_answer_once_and_separates_answers_to_one_item():
    rater = make_rater(make_answer_queue(), started=True)
    list_order = list(rater.ratings.order_by("position").values_list("trial", "item"))
    assert len(list_order) == len({trial for trial, _ in list_order}) == 12
    assert all(one[1] != other[1] for one, other in pairwise(list_order))


def test_an_answer_never_gets_more_raters_than_requested():
    queue = make_answer_queue(raters_wanted=2)
    first, second, third = (make_rater(queue) for _ in range(3))
    assert session.start_session(first)
    assert session.start_session(second)
    assert not session.start_session(third)
    per_answer = Counter(Rating.objects.values_list("trial", flat=True))
    assert set(per_answer.values()) == {2}


def test_the_answer_of_a_given_rating_cannot_change():
    rater = make_rater(make_answer_queue(), started=True)
    with pytest.raises(IntegrityError, match="keeps its"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE grading_app_rating SET trial_id = NULL")
    assert rater.ratings.filter(trial=None).count() == 0


def test_undo_resume_and_checks_work_as_with_items():
    queue = make_answer_queue(attention_checks={"item-3": [1]}, practice_items=1)
    rater = make_rater(queue, started=True)
    rating = rater.find_next_rating()
    assert rating.kind == "practice"
    assert session.rate(rater, position=1, value=2, seconds=1)
    assert session.undo(rater)
    assert rater.find_next_rating().trial_id == rating.trial_id
    rate_all(rater, value=1)
    rater.refresh_from_db()
    assert rater.finished_at
    (line,) = queue_results.list_rater_progress(queue)
    assert (line.passed, line.checked) == (1, 1)
    assert Rating.objects.counted().count() == 8


@pytest.mark.slow
def test_results_are_computed_for_each_answer(client):
    queue = make_answer_queue()
    for value in (2, 4):
        rate_all(make_rater(queue, started=True), lambda rating, value=value: value)
    means = queue_results.list_item_means(queue)
    assert len(means) == 12
    assert {(line.n, line.mean) for line in means} == {(2, 3.0)}
    assert queue_results.count_complete(queue) == (12, 12)
    client.force_login(queue.owner)
    text = page_text(client.get(queue.get_absolute_url()))
    assert "12 of 12 answers have 2 raters" in text
    drawn = queue.answers.values_list("trial__run__condition__model__name", "trial__sample_idx").distinct()
    assert [f"{model}, sample {sample}" for model, sample in drawn if f"{model}, sample {sample}<" not in text] == []
    rows = list(csv.DictReader(io.StringIO("".join(queue_results.iterate_csv_lines(queue)))))
    assert len(rows) == 24
    assert {row["experiment"] for row in rows} == {"reading-study"}
    assert {row["condition_id"] for row in rows} == set(
        queue.experiment.conditions.values_list("condition_id", flat=True)
    )
    assert len({row["trial_id"] for row in rows}) == 12


def test_the_experiments_exports_include_ratings():
    queue = make_answer_queue(practice_items=1)
    first, second = (make_rater(queue, started=True) for _ in range(2))
    rate_all(first, 2)
    session.rate(second, position=1, value=5, seconds=1)
    second.exclude(by=queue.owner, reason="x")
    lines = b"".join(export_chunks(queue.experiment, "ratings", "jsonl")).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert Counter((row["rater"], row["kind"], row["rating"], row["excluded"]) for row in rows) == {
        (1, "practice", 2, False): 1, (1, "item", 2, False): 10, (2, "practice", 5, True): 1,
    }  # fmt: skip
    stored = dict(Rating.objects.values_list("trial", "item__key"))
    assert all(stored[row["trial_id"]] == row["item_key"] for row in rows)
    assert {row["model"] for row in rows} == {"small", "large"}
    assert {row["rated_on"] for row in rows} == {"reading-goodness"}
    some = b"".join(export_chunks(queue.experiment, "ratings", "csv", {"item": "item-3"})).decode().splitlines()
    assert len(some) == 1 + 2


def test_answer_queues_cannot_produce_norms():
    queue = make_answer_queue()
    rate_all(make_rater(queue, started=True))
    with pytest.raises(QueueError, match="norms describe items"):
        make_norms(queue, by=queue.owner, reason="")


# --- access ----------------------------------------------------------------------------------------------------------


def test_an_answer_queue_is_created_from_its_experiment(client):
    study = make_answered_experiment(items=6, models=["small", "large"])
    dimension = factories.make_dimension("goodness", **GOOD)
    condition = study.conditions.first()
    client.force_login(study.owner)
    address = reverse("rating_queue_of_answers", args=[study.slug])
    assert load_labels([study.pk])[condition.pk] in client.get(address).content.decode()
    form_data = {
        "name": "reading", "title": "Read", "instructions": "Read.", "dimensions": dimension.pk, "raters_wanted": 2,
        "practice_items": 0, "conditions": condition.pk, "sample_items": 3, "answers_each": 1, "sample_seed": 7,
    }  # fmt: skip
    answer = client.post(address, form_data)
    queue = RatingQueue.objects.get()
    assert answer["Location"] == queue.get_absolute_url()
    assert (queue.subject, queue.experiment, queue.dataset) == ("answers", study, study.dataset)
    assert list(queue.conditions.all()) == [condition]
    client.post(reverse("rating_queue_act", args=["reading", "open"]), {"reason": "ready"})
    assert queue.answers.count() == 3


def test_conditions_of_another_experiment_cannot_be_chosen():
    study, other = make_answered_experiment("one"), make_answered_experiment("two")
    queue = RatingQueue(experiment=study, dataset=study.dataset, subject="answers", owner=study.owner)
    form = AnswerQueueForm({"conditions": [other.conditions.get().pk]}, instance=queue)
    assert "conditions" in form.errors


def test_users_without_access_to_the_experiment_cannot_see_its_queue(client):
    queue = make_answer_queue()
    stranger = factories.make_user("stranger", permissions.RESEARCHER)
    client.force_login(stranger)
    addresses = [
        queue.get_absolute_url(),
        reverse("rating_queue_export", args=[queue.name]),
        reverse("rating_queue_of_answers", args=[queue.experiment.slug]),
    ]
    assert [client.get(address).status_code for address in addresses] == [404] * 3
    assert queue.name not in client.get(reverse("rating_queue_list")).content.decode()


def test_the_rater_sees_question_choices_and_answer():
    dataset = factories.make_dataset(
        "choosing", [{"key": "k", "input": "Which one?", "choices": ["Left", "Right"], "target": "A"}]
    )
    study = factories.make_experiment("choosing", dataset=dataset)
    (run,) = factories.make_runs(study)
    factories.plan_trials(run, answer=lambda *_: "I say <b>Left</b>.")
    rater = make_rater(make_answer_queue(experiment=study), started=True)
    text = sign_in(rater.user).get("/ratings/reading/").content.decode()
    for label in ("Which one?", "Left", "Right", "I say &lt;b&gt;Left&lt;/b&gt;."):
        assert label in text
