"""Adjudication of an answer: permissions, scales, and the permanence of earlier decisions."""

import json
import re
from datetime import datetime

import pytest
from django.core.cache import cache
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.forms.rating import AdjudicationForm, list_scales
from grading_app.models import Adjudication, GradeCondition, Grading, SupersededVerdict
from grading_app.models.rubrics import Scale
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.raters.disagreements import AdjudicationError, adjudicate, may_adjudicate
from grading_app.results.raters.raters import Rater
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.raters.unit_counts import load_unit_counts
from tests import factories
from tests.factories.gradings import (
    expand_counts,
    list_generated_trials,
    make_answered_experiment,
    make_gradings,
    make_scale_rubric,
)
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
SEVEN = Scale(1, 7)


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def experiment():
    created = make_answered_experiment(items=4)
    rubric = make_scale_rubric()
    make_gradings(created, "judge-a", lambda trial: 2.0, rubric=rubric)
    make_gradings(created, "judge-b", lambda trial: 6.0, rubric=rubric)
    return created


def post_decision(client, user, experiment, trial, **fields):
    client.force_login(user)
    data = {"score": "5", "reason": "The steps are right.", "scale_min": "1.0", "scale_max": "7.0", **fields}
    return client.post(reverse("disagreement_adjudicate", args=[experiment.slug, trial.pk]), data, follow=True)


def test_a_decision_with_a_reason_is_stored_as_an_adjudicated_grading(client, experiment):
    trial = list_generated_trials(experiment)[0]
    page = post_decision(client, experiment.owner, experiment, trial)
    assert "Decision saved: 5." in page.content.decode()
    word = Adjudication.objects.get()
    assert (word.score, word.reason, word.by) == (5, "The steps are right.", experiment.owner)
    condition = GradeCondition.objects.get(kind="adjudicated")
    grading = Grading.objects.get(condition=condition)
    assert (grading.trial, grading.score, grading.reasoning) == (trial, 5, "The steps are right.")
    assert condition.parameters == {"scale_min": 1, "scale_max": 7}


def test_a_correction_adds_a_row_and_the_last_row_counts(client, experiment):
    trial = list_generated_trials(experiment)[0]
    post_decision(client, experiment.owner, experiment, trial)
    page = post_decision(client, experiment.owner, experiment, trial, score="2", reason="I had misread it.")
    text = page.content.decode()
    assert "The steps are right." in text
    assert "I had misread it." in text
    assert list(Adjudication.objects.values_list("score", flat=True)) == [2, 5]
    assert Grading.objects.get(condition__kind="adjudicated").score == 2


def test_the_export_has_the_time_of_the_decision_that_counts(experiment):
    trial = list_generated_trials(experiment)[0]
    adjudicate(trial, scale=SEVEN, score=5, reason="So it is.", by=experiment.owner)
    first_time = Grading.objects.get(condition__kind="adjudicated").created_at
    last = adjudicate(trial, scale=SEVEN, score=2, reason="I had misread it.", by=experiment.owner)
    lines = b"".join(export_chunks(experiment, "gradings", "jsonl")).splitlines()
    (row,) = (row for row in map(json.loads, lines) if row["kind"] == "adjudicated")
    assert (row["score"], datetime.fromisoformat(row["graded_at"])) == (2, last.at)
    (former,) = SupersededVerdict.objects.filter(trial=trial)
    assert (former.score, former.given_at) == (5, first_time)


def test_a_stored_decision_cannot_be_changed(experiment):
    word = adjudicate(
        list_generated_trials(experiment)[0], scale=SEVEN, score=3, reason="So it is.", by=experiment.owner
    )
    with pytest.raises(IntegrityError, match="only added"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE grading_app_adjudication SET score = 4 WHERE id = %s", [word.pk])


@pytest.mark.slow
def test_a_decision_appears_immediately_as_a_reference(client, experiment):
    client.force_login(experiment.owner)
    address = reverse("experiment_agreement", args=["pilot"])
    before = client.get(address).context["result"].report.coverage
    post_decision(client, experiment.owner, experiment, list_generated_trials(experiment)[1])
    page = client.get(address)
    assert len(before) == 2
    measured = page.context["result"].report
    assert [one.n for one in measured.coverage] == [4, 4]
    assert page.context["roles"].people == []
    assert [line.bias.estimate for line in measured.references] == [2 - 5, 6 - 5]
    post_decision(client, experiment.owner, experiment, list_generated_trials(experiment)[1], score="1", reason="No.")
    lines = client.get(address).context["result"].report.references
    assert [line.bias.estimate for line in lines] == [2 - 1, 6 - 1]
    selection = RatingSelectionForm(client.get(address).wsgi_request.GET, experiment).get_selection()
    assert len(expand_counts(load_unit_counts(selection))) == 9


def test_decisions_are_exported_with_the_gradings(client, experiment):
    post_decision(client, experiment.owner, experiment, list_generated_trials(experiment)[0])
    answer = client.get(reverse("experiment_export", args=["pilot", "gradings", "csv"]))
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert sum("adjudicated--" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": "8"}, "on the scale from 1 to 7"),
        ({"score": "nan"}, "Enter a number"),
        ({"score": ""}, "required"),
        ({"reason": "  "}, "required"),
        ({"scale_min": "nan", "scale_max": "x"}, "on the scale from 0 to 1"),
    ],
)
def test_invalid_adjudications_are_rejected_with_a_message(client, experiment, fields, message):
    page = post_decision(client, experiment.owner, experiment, list_generated_trials(experiment)[0], **fields)
    assert message in page.content.decode()
    assert not Adjudication.objects.exists()


def test_only_completed_answers_are_adjudicated(experiment):
    trial = list_generated_trials(experiment)[0]
    trial.status = "failed"
    with pytest.raises(AdjudicationError, match="completed answers"):
        adjudicate(trial, scale=SEVEN, score=3, reason="x", by=experiment.owner)


def test_only_permitted_roles_can_adjudicate(client, experiment):
    teammate = factories.make_user("teammate", permissions.RESEARCHER)
    curator = factories.make_user("curator", permissions.CURATOR)
    viewer = factories.make_user("viewer", permissions.VIEWER)
    experiment.sharing = "group"
    experiment.save()
    trial = list_generated_trials(experiment)[0]
    may = {name.username: may_adjudicate(name, experiment) for name in (experiment.owner, teammate, curator, viewer)}
    assert may == {"owner": True, "teammate": False, "curator": True, "viewer": False}
    assert [post_decision(client, user, experiment, trial).status_code for user in (teammate, viewer, curator)] == [
        404, 404, 200
    ]  # fmt: skip
    client.force_login(teammate)
    assert "data-previous" not in client.get(reverse("disagreement", args=["pilot", trial.pk])).content.decode()
    assert 'name="score"' not in client.get(reverse("disagreement", args=["pilot", trial.pk])).content.decode()


def test_a_hostile_query_never_redirects_to_another_site(client, experiment):
    trial = list_generated_trials(experiment)[0]
    client.force_login(experiment.owner)
    data = {"score": "5", "reason": "x", "scale_min": "1", "scale_max": "7", "query": "//evil.example/\r\nX: 1"}
    answer = client.post(reverse("disagreement_adjudicate", args=["pilot", trial.pk]), data)
    assert answer["Location"].startswith(f"/experiments/pilot/disagreements/{trial.pk}/?")
    assert "\r" not in answer["Location"]


def test_each_scale_of_the_raters_is_offered_once_with_the_names_of_its_points():
    scale = Scale(1, 3, ((1.0, "Low"), (3.0, "High")))
    raters = [Rater("g1", "a", "judge", Scale(1, 3)), Rater("g2", "b", "judge", scale), Rater("g3", "c", "rule")]
    assert list_scales([*raters, Rater("g4", "d", "rule", Scale(0, 1))]) == [scale, Scale(0, 1)]
    assert "1 Low" in str(AdjudicationForm(scale)["score"])
    assert 'inputmode="decimal"' in str(AdjudicationForm(Scale(0, 1))["score"])


def test_labels_with_scores_of_their_own_are_chosen_by_name():
    third = 1 / 3
    labels = Scale(0, 1, ((0.0, "wrong"), (third, "in part"), (0.5, "partly"), (1.0, "right")))
    assert "0.5 partly" in str(AdjudicationForm(labels)["score"])
    # Exactly the label's score; otherwise a decision would differ from the label that it confirms.
    value = re.search('value="([^"]+)"[^>]*>0.333333 in part', str(AdjudicationForm(labels)["score"]))
    assert float(value[1]) == third
