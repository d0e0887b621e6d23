"""Texts of models, judges, files and people are escaped on the comparison pages and for raters."""

import pytest
from django.urls import reverse

from grading_app.models.rubrics import Scale
from grading_app.results.raters.disagreements import adjudicate
from tests import factories
from tests.factories.gradings import list_generated_trials, make_gradings, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_rater, rate_all, sign_in
from tests.integration.pages.conftest import NASTY

pytestmark = pytest.mark.django_db
SHOWN = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"


@pytest.fixture
def experiment():
    item = {"key": NASTY, "input": NASTY, "target": NASTY, "category": NASTY, "choices": [NASTY]}
    plain = {**item, "key": "plain"}
    model = factories.make_model("small", model=NASTY)
    created = factories.make_experiment(
        "nasty", title=NASTY, dataset=factories.make_dataset("nasty", [item, plain]), models=[model]
    )
    for run in factories.make_runs(created):
        factories.plan_trials(run, answer=lambda *_: {"answer": NASTY, "finish_reason": "<s>"})
    labels = [{"name": NASTY, "score": 1}, {"name": "other", "score": 5}]
    rubric = make_scale_rubric("labels", kind="label", labels=labels, low=1, high=5)
    make_gradings(created, "judge-<b>", lambda trial: 1.0, rubric=rubric, reasoning=NASTY)
    make_gradings(created, "judge-two", lambda trial: 5.0, rubric=rubric, reasoning=NASTY)
    adjudicate(list_generated_trials(created)[0], scale=Scale(1, 5), score=5, reason=NASTY, by=created.owner)
    return created


@pytest.mark.slow
def test_no_markup_reaches_a_page_or_a_figure(client, experiment):
    client.force_login(experiment.owner)
    slug, trial = experiment.slug, list_generated_trials(experiment)[0].pk
    pages = {
        reverse("experiment_agreement", args=[slug]): "judge-&lt;b&gt;",
        reverse("experiment_disagreements", args=[slug]): SHOWN,
        reverse("disagreement", args=[slug, trial]): SHOWN,
        reverse("rating_queue_of_answers", args=[slug]): " small</label>",
        reverse("figure_file", args=[slug, "agreement-confusion", "svg"]): "judge-&lt;b&gt;",
    }
    for address, message in pages.items():
        answer = client.get(address, {"category": ""})
        text = answer.content.decode()
        assert answer.status_code == 200, address
        assert message in text, address
        assert not [markup for markup in ("<script>alert", "<img src=x", "judge-<b>", "<s>") if markup in text], address


def test_a_category_from_the_url_is_escaped(client, experiment):
    client.force_login(experiment.owner)
    for name in ("experiment_agreement", "experiment_disagreements"):
        text = client.get(reverse(name, args=["nasty"]), {"category": NASTY}).content.decode()
        assert "<script>alert" not in text
        assert SHOWN in text


def test_markup_is_shown_to_raters_as_text(experiment):
    queue = make_answer_queue(experiment=experiment, title=NASTY, instructions=NASTY)
    rater = make_rater(queue)
    client = sign_in(rater.user)
    pages = [client.get("/ratings/reading/")]
    client.post("/ratings/reading/start/")
    pages.append(client.get("/ratings/reading/"))
    rate_all(rater, 3)
    thanks = client.get("/ratings/reading/").content.decode()
    assert "<script>alert" not in thanks
    for page in pages:
        text = page.content.decode()
        assert "<script>alert" not in text
        assert SHOWN in text
