"""The list of trials finds the answers that raters scored differently: by one rubric, or in one queue."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs_app.models import Trial
from tests import factories
from tests.factories.gradings import make_scale_rubric

pytestmark = pytest.mark.django_db


def test_judges_disagree_only_within_one_rubric(client):
    experiment = factories.make_experiment("sums", dataset=factories.make_dataset("sums", 4))
    (run,) = factories.make_runs(experiment, status="done")
    trials = factories.plan_trials(run, answer=lambda *_: "2")
    quality, style = make_scale_rubric("quality"), make_scale_rubric("style")
    scores = {("one", quality): [1, 1, 3, 2], ("two", quality): [1, 4, 3, None], ("three", style): [5, 4, 5, 5]}
    for (name, rubric), scores_of_judge in scores.items():
        judge = experiment.grade_conditions.create(grade_condition_id=name, kind="judge", rubric=rubric)
        for trial, score in zip(trials, scores_of_judge, strict=True):
            outcome = {"parse_ok": False, "parse_error": "no_score"} if score is None else {"parse_ok": True}
            judge.gradings.create(trial=trial, score=score, **outcome)
    rule = experiment.grade_conditions.create(grade_condition_id="rule", kind="rule", scorer="numeric")
    rule.gradings.create(trial=trials[0], score=0, parse_ok=True)
    client.force_login(experiment.owner)
    response = client.get(reverse("trial_list"), {"experiment": "sums", "disagree": "true"})
    assert response.context["page"].keys == [trials[1].pk]
    assert response.context["count_label"] == "1 trial"
    assert Trial.objects.count() == 4


def test_where_no_two_raters_can_differ_no_answer_is_looked_at(client):
    experiment = factories.make_experiment("sums", dataset=factories.make_dataset("sums", 4))
    (run,) = factories.make_runs(experiment, status="done")
    (trial, *_) = factories.plan_trials(run, answer=lambda *_: "2")
    judge = experiment.grade_conditions.create(
        grade_condition_id="one", kind="judge", rubric=make_scale_rubric("quality")
    )
    judge.gradings.create(trial=trial, score=1, parse_ok=True)
    client.force_login(experiment.owner)
    with CaptureQueriesContext(connection) as queries:
        response = client.get(reverse("trial_list"), {"experiment": "sums", "disagree": "true"})
    assert response.context["page"].keys == []
    assert not [query["sql"] for query in queries if "HAVING MIN(" in query["sql"]]
