"""The scales on which raters are compared: nominal labels, one common scale, shares of different scales."""

import pytest
from django.core.cache import cache
from django.http import QueryDict
from django.urls import reverse

from grading_app.models import Grader, Panel
from grading_app.results.raters import disagreements, unit_counts
from grading_app.results.raters.raters import list_raters
from grading_app.results.raters.rating_selection import RatingSelectionForm
from tests.factories.gradings import (
    expand_counts,
    make_answered_experiment,
    make_gradings,
    make_scale_rubric,
)
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def experiment():
    created = make_answered_experiment(samples=2)
    rubric = make_scale_rubric()
    make_gradings(created, "judge-a", lambda trial: 1 + trial.item.position % 7, rubric=rubric)
    make_gradings(created, "judge-b", lambda trial: 1 + (trial.item.position + trial.sample_idx) % 7, rubric=rubric)
    return created


def open_page(client, experiment, query=""):
    client.force_login(experiment.owner)
    return client.get(f"{reverse('experiment_agreement', args=[experiment.slug])}?{query}")


def get_measure(page, name):
    (measure,) = [one for one in page.context["result"].report.measures if one.name == name]
    return measure


def read_selection(experiment, query=""):
    return RatingSelectionForm(QueryDict(query), experiment).get_selection()


def test_two_labels_are_compared_on_a_nominal_scale(client):
    created = make_answered_experiment()
    for name, off in (("exact_match", 0), ("numeric", 1)):
        make_gradings(created, name, lambda trial, off=off: float((trial.item.position + off) % 3 == 0), kind="rule")
    page = open_page(client, created)
    assert page.context["result"].report.level == "nominal"
    assert get_measure(page, "Cohen's kappa").suits_scale


@pytest.mark.slow
def test_raters_of_one_scale_are_compared_by_default(client, experiment):
    rule = make_gradings(experiment, "numeric", lambda trial: 1.0, kind="rule")
    page = open_page(client, experiment)
    assert [rater.kind_label for rater in page.context["selection"].raters] == ["Judge", "Judge"]
    assert "different scales" not in page.content.decode()
    keys = "&".join(f"rater=g{pk}" for pk in experiment.grade_conditions.values_list("pk", flat=True))
    assert "different scales" in open_page(client, experiment, keys).content.decode()
    shares = open_page(client, experiment, f"{keys}&scale=share")
    assert "different scales" not in shares.content.decode()
    lowest = {one.rater: one.low for one in shares.context["result"].report.coverage}
    assert lowest[f"g{rule.pk}"] == 1
    judges = [key for key in lowest if key != f"g{rule.pk}"]
    assert all(lowest[key] == 0 for key in judges)


def test_scores_can_be_compared_as_shares_of_their_scales(experiment):
    rubric = make_scale_rubric("wide", low=0, high=60)
    wide = make_gradings(experiment, "wide-judge", lambda trial: 10.0 * (trial.item.position % 7), rubric=rubric)
    narrow = experiment.grade_conditions.order_by("pk").first()
    selection = read_selection(experiment, f"rater=g{wide.pk}&rater=g{narrow.pk}&scale=share")
    values = {}
    for unit, rater, value in expand_counts(unit_counts.load_unit_counts(selection)):
        values.setdefault(unit, {})[rater] = value
    assert all(one[f"g{wide.pk}"] == pytest.approx(one[f"g{narrow.pk}"]) for one in values.values())
    assert disagreements.list_disagreements(selection).disagreements == []


def test_a_scale_of_one_point_has_no_shares_and_causes_no_error(experiment):
    labels = [{"name": "right", "score": 1}, {"name": "wrong", "score": 1}]
    flat = make_gradings(
        experiment, "flat", lambda trial: 1.0, rubric=make_scale_rubric("flat", kind="label", labels=labels)
    )
    selection = read_selection(experiment, f"rater=g{flat.pk}&scale=share")
    assert {value for _, _, value in expand_counts(unit_counts.load_unit_counts(selection))} == {0}


def test_a_panel_has_the_scale_of_its_members(experiment):
    rubric = make_scale_rubric("panelled", low=1, high=9)
    model, sampler = experiment.language_models.get(), experiment.samplers.get()
    grader = Grader.objects.create(name="one", language_model=model, rubric=rubric, sampler=sampler)
    panel = Panel.objects.create(name="three")
    panel.graders.add(grader)
    condition = make_gradings(experiment, "panel", lambda trial: 3.0, kind="panel")
    condition.panel = panel
    condition.save()
    (offer,) = [rater for rater in list_raters(experiment, "answers") if rater.kind == "panel"]
    assert (offer.label, str(offer.scale)) == ("Panel three", "1 to 9")


def test_criteria_give_a_share_and_labels_their_scores():
    labels = [{"name": "wrong", "score": 0}, {"name": "right", "score": 2}]
    assert str(make_scale_rubric("list", kind="criteria", low=1, high=5).scale) == "0 to 1"
    assert make_scale_rubric("names", kind="label", labels=labels).scale.points == (
        (0.0, "wrong"),
        (2.0, "right"),
    )
