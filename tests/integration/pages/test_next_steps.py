"""No page is a dead end: each names the next step, and links to it."""

import html
import re
from decimal import Decimal

import pytest
from django.test import Client

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from runs_app.models import Experiment, Run
from tests import factories

pytestmark = pytest.mark.django_db


class SignedIn(Client):
    """A client that is signed in as `user`."""

    def __init__(self, user):
        super().__init__()
        self.user = user
        self.force_login(user)


@pytest.fixture
def client():
    return SignedIn(factories.make_user("rita", permissions.RESEARCHER))


def read_text(page):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


def make_ended(client, answer, **fields):
    """Return a launched experiment of one run whose calls have ended."""
    experiment = factories.make_experiment(owner=client.user, status="active", **{"scorers": ["exact_match"], **fields})
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=answer)
    return experiment


def read_progress(client, experiment):
    return client.get(f"/experiments/{experiment.slug}/progress/").content.decode()


def answer_right(item, dimension, sample_idx):
    return {"answer": item.target, "status": "done"}


def test_an_approved_dataset_leads_to_a_new_experiment_with_it(client):
    dataset = factories.make_dataset("capitals", 3)
    page = client.get(dataset.get_absolute_url()).content.decode()
    assert f'href="/experiments/new/?dataset={dataset.pk}"' in page
    form = client.get(f"/experiments/new/?dataset={dataset.pk}").content.decode()
    assert re.search(rf'<option value="{dataset.pk}"\s+selected', form)
    draft = factories.make_dataset("draft", 3, approved=False)
    assert "/experiments/new/?dataset=" not in client.get(draft.get_absolute_url()).content.decode()
    assert client.get("/experiments/new/?dataset=99999999999999999999").status_code == 200


def test_the_end_of_progress_names_the_scores_and_leads_to_the_results(client):
    experiment = make_ended(client, answer_right)
    Run.objects.update(status="done")
    grade(experiment, by="test")
    page = read_progress(client, experiment)
    assert re.search(r"Done\. 3 answers: \S+.* 100 %\.", read_text(page))
    assert 'href="/experiments/pilot/results/">See results' in page


def test_the_end_of_progress_names_the_score_of_each_condition(client):
    experiment = factories.make_experiment(
        owner=client.user, status="active", scorers=["exact_match"],
        dataset=factories.make_dataset("sums", 50),
        models=[factories.make_model("big"), factories.make_model("tiny")],
    )  # fmt: skip
    right_answers = {"big": 47, "tiny": 33}
    for run in factories.make_runs(experiment):
        limit = right_answers[run.condition.model.name]
        factories.plan_trials(
            run,
            answer=lambda item, *_, limit=limit: {"answer": item.target if item.position < limit else "no"},
        )
    Run.objects.update(status="done")
    grade(experiment, by="test")
    assert "Done. 100 answers: big 94 %, tiny 66 %. See results" in read_text(read_progress(client, experiment))


def test_the_end_of_progress_says_how_many_answers_have_a_score(client):
    experiment = make_ended(
        client,
        lambda item, *_: {"answer": item.target if item.position else "no idea"},
        scorers=["numeric"],
        dataset=factories.make_dataset("numbers", [{"key": f"k{n}", "input": "?", "target": "7"} for n in range(3)]),
    )
    Run.objects.update(status="done")
    grade(experiment, by="test")
    text = read_text(read_progress(client, experiment))
    assert re.search(r"Done\. 3 answers: \S+.* 100 % \(2 of 3 scored\)\. Every scored .* See results", text)


def test_while_calls_are_under_way_progress_does_not_say_done(client):
    experiment = make_ended(client, answer_right)
    Run.objects.update(status="running")
    assert "See results" not in read_progress(client, experiment)


def test_a_stopped_run_leads_to_its_calls_and_to_retry_and_resume(client):
    def answer(item, dimension, sample_idx):
        return {"status": "failed", "error_class": "unauthorized"} if item.position else {"status": "pending"}

    experiment = make_ended(client, answer)
    Run.objects.update(status="stopped", stop_reason="2 calls were unauthorized", n_failed=2, n_pending=1)
    page = read_progress(client, experiment)
    text = read_text(page)
    assert "2 trials failed. See the calls Retry 2 Resume" in text
    assert 'href="/trials/?experiment=pilot&amp;status=failed"' in page
    assert 'action="/experiments/pilot/control/resume/"' in page


def test_a_spent_budget_leads_to_a_higher_one_and_says_what_it_pays(client):
    experiment = make_ended(client, answer_right, max_usd=Decimal(1))
    Run.objects.update(
        status="paused", paused_by_budget=True, n_done=10, n_pending=30, spent_usd=1, reserve_usd=Decimal("0.2")
    )
    Experiment.objects.update(spent_usd=1)
    page = read_progress(client, experiment)
    assert 'href="/experiments/pilot/edit/#id_max_usd">Raise budget</a>' in page
    assert "About $3.00 more pays for the 30 remaining trials." in read_text(page)


def test_a_launch_says_before_that_the_budget_covers_no_call(client):
    sampler = factories.make_sampler("long", max_tokens=100_000)
    experiment = factories.make_experiment(owner=client.user, max_usd=Decimal("0.01"), samplers=[sampler])
    page = read_text(client.get(f"/experiments/{experiment.slug}/launch/").content.decode())
    assert "The budget has $0.01 left, and one call of small may cost $0.20" in page
    assert "Raise the budget, or lower max_tokens" in page
