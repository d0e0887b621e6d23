"""Home says what needs the reader, what runs, what has finished with which score, and what this month has cost."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from evalsite.lib import permissions
from grading_app.models.rubrics import Scale
from grading_app.results.headlines import load_headlines
from grading_app.results.raters.disagreements import adjudicate
from runs_app.models import Experiment, Run
from tests import factories
from tests.factories.gradings import (
    list_generated_trials,
    make_answered_experiment,
    make_gradings,
    make_scale_rubric,
)
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


def read(response):
    return " ".join(strip_tags(page_text(response)).split())


def open_home(client, user):
    client.force_login(user)
    return read(client.get("/"))


def make_finished(slug="pilot", items=4, **fields):
    experiment = make_answered_experiment(slug, items=items, **fields)
    Run.objects.filter(experiment=experiment).update(status="done", finished_at=timezone.now())
    return experiment


def make_active(slug="pilot", *, status="stopped", **fields):
    """Return an active experiment with one run in this state."""
    experiment = factories.make_experiment(slug, status="active", **fields)
    (run,) = factories.make_runs(experiment, status="running")
    factories.plan_trials(run)
    Run.objects.filter(pk=run.pk).update(status=status)
    return experiment


def test_a_stopped_run_needs_its_owner_and_nobody_else_in_the_group(client):
    experiment = make_active(sharing="group")
    Run.objects.filter(experiment=experiment).update(stop_reason="20 of 20 calls failed with status 401.")
    colleague = factories.make_user("colleague", permissions.RESEARCHER)
    text = open_home(client, experiment.owner)
    assert "1 run stopped. 20 of 20 calls failed with status 401." in text
    assert "See why and resume" in text
    assert "run stopped" not in open_home(client, colleague)


def test_a_reached_budget_is_named_with_its_amounts(client):
    experiment = make_active(status="paused", max_usd=Decimal(5))
    Experiment.objects.filter(pk=experiment.pk).update(spent_usd=Decimal("4.99"))
    Run.objects.filter(experiment=experiment).update(paused_by_budget=True, reserve_usd=Decimal(1))
    text = open_home(client, experiment.owner)
    assert "Budget reached: $4.99 of $5.00 spent." in text
    assert "Raise the budget" in text


def test_an_unset_key_needs_an_operator(client, monkeypatch):
    monkeypatch.delenv("EVALSITE_KEY_LAB", raising=False)
    factories.make_model(endpoint=factories.make_endpoint("lab", key_env="EVALSITE_KEY_LAB"))
    operator = factories.make_user("operator", permissions.OPERATOR)
    researcher = factories.make_user("researcher", permissions.RESEARCHER)
    assert "lab Its key EVALSITE_KEY_LAB is not set." in open_home(client, operator)
    assert "EVALSITE_KEY_LAB" not in open_home(client, researcher)
    monkeypatch.setenv("EVALSITE_KEY_LAB", "secret-key")
    assert "EVALSITE_KEY_LAB" not in open_home(client, operator)


def test_an_endpoint_that_backs_off_needs_an_operator(client):
    endpoint = factories.make_endpoint("lab")
    factories.make_model(endpoint=endpoint)
    operator = factories.make_user("operator", permissions.OPERATOR)
    assert "backs off" not in open_home(client, operator)
    endpoint.paused_until, endpoint.pause_reason = timezone.now() + timedelta(minutes=5), "3 answers of status 503"
    endpoint.save(update_fields=["paused_until", "pause_reason"])
    text = open_home(client, operator)
    assert "Endpoint lab backs off: 3 answers of status 503" in text
    assert "Open the endpoint" in text
    assert "backs off" not in open_home(client, factories.make_user("researcher", permissions.RESEARCHER))


def test_disagreements_of_raters_need_the_owner_until_somebody_decides(client):
    experiment = make_finished(sharing="group")
    rubric = make_scale_rubric("strict", low=0, high=1)
    make_gradings(experiment, "one", lambda trial: 1.0, rubric=rubric)
    assert "Raters disagree" not in open_home(client, experiment.owner)
    make_gradings(experiment, "two", lambda trial: float(trial.item.position != 1), rubric=rubric)
    text = open_home(client, experiment.owner)
    assert "pilot Raters disagree on 1 undecided answer. See disagreements" in text
    assert "Raters disagree" not in open_home(client, factories.make_user("colleague", permissions.RESEARCHER))
    (trial,) = [trial for trial in list_generated_trials(experiment) if trial.item.position == 1]
    adjudicate(trial, scale=Scale(0, 1), score=1.0, reason="It is right.", by=experiment.owner)
    assert "Raters disagree" not in open_home(client, experiment.owner)


def test_drafts_need_those_who_may_approve_them(client):
    factories.make_prompt("new", status="draft")
    factories.make_prompt("newer", status="draft")
    factories.make_dataset("fresh", approved=False)
    curator = factories.make_user("curator", permissions.CURATOR)
    researcher = factories.make_user("researcher", permissions.RESEARCHER)
    text = open_home(client, curator)
    assert "Datasets 1 draft can be approved." in text
    assert "Prompts 2 drafts can be approved." in text
    assert "can be approved" not in open_home(client, researcher)


def test_a_finished_experiment_shows_the_score_that_the_list_shows(client):
    experiment = make_finished()
    make_gradings(experiment, "exact", lambda trial: float(trial.item.position < 3), kind="rule")
    rows = Experiment.objects.filter(pk=experiment.pk).with_totals()
    headline = load_headlines(list(rows), experiment.owner)[experiment.pk]
    assert headline.text.startswith("75.0")
    text = open_home(client, experiment.owner)
    assert "Latest results" in text
    assert f"{headline.text} {headline.interval} {headline.measure}" in text
    assert headline.text in read(client.get("/experiments/"))


def test_what_finished_since_the_last_visit_is_marked(client):
    experiment = make_finished()
    client.force_login(experiment.owner)
    assert "New" not in read(client.get("/")).split("Latest results")[1].split("spent")[0]
    session = client.session
    session["home_seen_at"] = (timezone.now() - timedelta(hours=2)).isoformat()
    session.save()
    for _ in range(2):  # The mark stays during the visit.
        assert "pilot New" in read(client.get("/"))
    session = client.session
    session["home_seen_at"] = (timezone.now() - timedelta(hours=2)).isoformat()
    session.save()
    Run.objects.filter(experiment=experiment).update(finished_at=timezone.now() - timedelta(days=1))
    assert "pilot New" not in read(client.get("/"))


def test_this_months_spending_adds_up_the_ledger_of_visible_experiments(client):
    mine = make_active("mine", status="done")
    hidden = make_active("hidden", status="done", owner=factories.make_user("other", permissions.RESEARCHER),
                         dataset=mine.dataset)  # fmt: skip
    now = timezone.now()
    for experiment, at, usd in (
        (mine, now, "1.25"),
        (mine, now, "2.50"),
        (mine, now - timedelta(days=40), "100"),
        (hidden, now, "1000"),
    ):
        trial = experiment.runs.get().trials.first()
        factories.make_attempt(trial, finished_at=at, cost_usd=Decimal(usd))
    assert "Spent this month $3.75" in open_home(client, mine.owner)


def test_the_number_of_queries_does_not_grow_with_finished_experiments(client, django_assert_max_num_queries):
    first = make_finished("first")
    client.force_login(first.owner)
    client.get("/")
    with CaptureQueriesContext(connection) as one:
        client.get("/")
    for number in range(4):
        make_finished(f"more-{number}", owner=first.owner)
    with django_assert_max_num_queries(len(one) + 2):
        client.get("/")
