"""Draws of judges on the grading tab: seeded, from a group of models, and pinned."""

import re

import pytest
from django.db import IntegrityError, transaction

from grading_app.models import Grader, Rubric
from runs_app.models import Experiment, Trial
from tests import factories
from tests.factories.gradings import make_answered_experiment
from tests.factories.judges import make_grader
from tests.factories.queues import sign_in

pytestmark = pytest.mark.django_db
PAGE = "/experiments/pilot/judge/draw/"


@pytest.fixture
def study():
    """Three answers by a model at one endpoint; four models of two families at another."""
    study = make_answered_experiment("pilot", items=3)
    Experiment.objects.filter(pk=study.pk).update(status="active")
    judges = factories.make_endpoint("judges")
    for name in ("qwen-a", "qwen-b", "llama-a", "llama-b"):
        factories.make_model(name, endpoint=judges)
    turns = [{"role": "user", "content": "{{input}} {{answer}}"}]
    Rubric.objects.create(name="standard", messages=turns, status="approved")
    return study


def build_form_data(**more):
    rubric = Rubric.objects.get().pk
    return {"name": "panelist", "rubric": rubric, "draw-draw": 2, "draw-seed": 5, "draw-by": "family",
            "draw-selectors": "endpoint:judges", **more}  # fmt: skip


def draw_judges(client, **more):
    """Return the page after a draw, and the data that its form submits."""
    page = client.post(PAGE, build_form_data(draw=1, **more))
    form = page.context["form"]
    return page, build_form_data(ask=1, confirmed="on", **{"draw-pinned": form.data.get("draw-pinned", ""), **more})


@pytest.mark.slow
def test_a_draw_shows_its_cost_before_it_is_requested_and_pinned(study):
    client = sign_in(study.owner)
    page, form_data = draw_judges(client)
    text = page.content.decode()
    assert page.context["estimate"].to_do == 2 * 3
    assert text.count("<strong>drawn</strong>") == 2
    assert not Grader.objects.exists()
    assert client.post(PAGE, form_data)["Location"] == "/experiments/pilot/grading/"
    study.refresh_from_db()
    draw = study.draws["judges"]["panelist"]
    assert sorted(Grader.objects.values_list("name", flat=True)) == sorted(f"panelist-{one}" for one in draw["drawn"])
    assert Trial.objects.filter(run__condition__stage="judge", status="pending").count() == 6
    assert "Judges panelist" in client.get("/experiments/pilot/").content.decode()
    assert "not in the design" not in client.get("/experiments/pilot/").content.decode()


def test_pages_of_judges_do_not_say_that_calls_of_unknown_cost_cost_nothing(study):
    client = sign_in(study.owner)
    run = study.runs.get()
    texts = []
    for unpriced in (0, 3):
        type(run).objects.update(n_unpriced=unpriced)
        page, _ = draw_judges(client)
        judge = client.get("/experiments/pilot/judge/", {"grader": make_grader(f"strict-{unpriced}").name})
        texts += [" ".join(re.sub("<[^>]+>", " ", one.content.decode()).split()) for one in (page, judge)]
    spent = [re.search(r"(\S+) spent so far", text)[1] for text in texts]
    assert spent == ["$0.00", "$0.00", "unknown", "unknown"]


@pytest.mark.slow
def test_the_database_accepts_new_draws_of_judges_but_no_changes_to_old_draws(study):
    client = sign_in(study.owner)
    _, form_data = draw_judges(client)
    client.post(PAGE, form_data)
    _, other_data = draw_judges(client, **{"draw-seed": 6, "name": "others"})
    client.post(PAGE, other_data)
    study.refresh_from_db()
    assert sorted(study.draws["judges"]) == ["others", "panelist"]
    for draws in ({}, {"judges": {"panelist": study.draws["judges"]["panelist"]}}):
        with pytest.raises(IntegrityError, match="are pinned"), transaction.atomic():
            Experiment.objects.filter(pk=study.pk).update(draws=draws)


@pytest.mark.slow
def test_a_name_cannot_be_used_for_two_draws(study):
    client = sign_in(study.owner)
    _, form_data = draw_judges(client)
    client.post(PAGE, form_data)
    _, second_data = draw_judges(client, **{"draw-seed": 9})
    response = client.post(PAGE, second_data)
    assert "were already drawn for pilot; choose a different name" in response.content.decode()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"draw-draw": 1}, "1 cannot hold one of each of 2 strata"),
        ({"draw-draw": ""}, "Enter the number of models."),
        ({"name": "No Name"}, "Use small letters"),
        ({"draw-selectors": "endpoint:nowhere"}, "nowhere"),
    ],
)
def test_an_invalid_field_is_reported_and_no_judge_is_created(study, more, message):
    page, _ = draw_judges(sign_in(study.owner), **more)
    assert message in page.content.decode()
    assert page.context["estimate"] is None
    assert not Grader.objects.exists()


def test_a_tampered_draw_is_refused(study):
    client = sign_in(study.owner)
    _, form_data = draw_judges(client)
    page = client.post(PAGE, {**form_data, "draw-pinned": "x" + form_data["draw-pinned"]})
    assert "Draw again" in page.content.decode()
    assert not Grader.objects.exists()


def test_what_a_page_without_judges_creates_leads_back_to_it(study):
    client = sign_in(factories.make_user("operator", superuser=True))
    for page, new in (
        ("/experiments/pilot/judge/", "/library/new/judge/?next="),
        ("/experiments/pilot/item-rubrics/", "/library/new/rubrics/?starter=writer&amp;next="),
        (PAGE, "/library/new/rubrics/?next="),
    ):
        assert f'href="{new}{page}"' in client.get(page).content.decode()
