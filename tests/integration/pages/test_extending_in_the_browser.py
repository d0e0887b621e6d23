"""The page that extends a launched design shows the cost before confirmation, and keeps the entries."""

from decimal import Decimal

import pytest
from django.urls import reverse

from runs_app import run_control
from runs_app.models import Experiment, Manifest, Run, Trial
from tests import factories
from tests.shared_rows import shared_rows


@shared_rows
def launched_experiment(people_of_file):
    experiment = factories.make_experiment(
        "grows", owner=people_of_file["owner"], models=[factories.make_model("small", max_output_tokens=100)], samples=2
    )
    run_control.launch(experiment, by=people_of_file["owner"])
    return experiment


@pytest.fixture
def other_model(launched_experiment):
    return factories.make_model("other", max_output_tokens=100)


@pytest.fixture
def post(launched_experiment, as_):
    """Post to the page as the owner."""
    address = reverse("experiment_extend", args=[launched_experiment.slug])
    return lambda **fields: as_("owner").post(address, {"samples": "2", **fields})


def test_the_design_tab_links_to_the_extend_page_with_the_current_design(launched_experiment, other_model, as_):
    assert reverse("experiment_extend", args=["grows"]) in as_("owner").get("/experiments/grows/").content.decode()
    page = as_("owner").get("/experiments/grows/extend/")
    assert '<span class="chip">small</span>' in page.content.decode()
    assert [str(row) for row in page.context["form"].fields["language_models"].queryset] == ["other"]
    assert "Extend and launch" not in page.content.decode()


def test_the_new_trials_and_their_cost_are_shown_before_creation(post, launched_experiment, other_model):
    n = Trial.objects.count()
    page = post(language_models=[other_model.pk], samples=launched_experiment.samples)
    preview = page.context["preview"]
    assert (preview.new_conditions, preview.new_trials) == (1, n)
    assert preview.ceiling_usd > 0
    assert "Extend and launch" in page.content.decode()
    assert (Trial.objects.count(), Manifest.objects.count(), launched_experiment.language_models.count()) == (n, 1, 1)


@pytest.mark.slow
def test_a_confirmed_extension_is_launched_with_author_and_reason(post, launched_experiment, other_model, people):
    n = Trial.objects.count()
    digest = post(language_models=[other_model.pk]).context["preview"].digest
    response = post(language_models=[other_model.pk], preview_digest=digest, reason="Compare sizes", extend="1")
    assert response.url == "/experiments/grows/progress/"
    assert Trial.objects.count() == 2 * n
    assert set(Run.objects.values_list("status", flat=True)) == {"running"}
    change = launched_experiment.history.get(aspect="language model")
    assert (change.to_value, change.by, change.reason) == ("other", people["owner"], "Compare sizes")
    assert Manifest.objects.first().created_by == people["owner"]


@pytest.mark.slow
def test_a_changed_cost_is_shown_again_before_the_launch(post, launched_experiment, other_model):
    digest = post(language_models=[other_model.pk]).context["preview"].digest
    other_model.output_price = Decimal(50)
    other_model.save()
    response = post(language_models=[other_model.pk], preview_digest=digest, extend="1")
    assert "has changed since it was shown" in response.content.decode()
    assert launched_experiment.language_models.count() == 1


@pytest.mark.slow
def test_a_cost_above_the_limit_needs_a_ticked_box(post, launched_experiment, other_model):
    Experiment.objects.update(confirm_above_usd=Decimal("0.0001"))
    digest = post(language_models=[other_model.pk]).context["preview"].digest
    response = post(language_models=[other_model.pk], preview_digest=digest, extend="1", reason="Kept words")
    assert "Confirm the maximum cost" in str(response.context["form"].errors["confirmed"])
    assert "Kept words" in response.content.decode()
    assert post(language_models=[other_model.pk], preview_digest=digest, extend="1", confirmed="on").status_code == 302


@pytest.mark.slow
def test_under_a_budget_a_model_without_a_price_is_refused(post, launched_experiment):
    Experiment.objects.update(max_usd=5)
    unpriced = factories.make_model("unpriced", input_price=None, output_price=None)
    digest = post(language_models=[unpriced.pk]).context["preview"].digest
    response = post(language_models=[unpriced.pk], preview_digest=digest, extend="1")
    assert "unpriced has no price, and the experiment has a budget" in response.content.decode()
    assert "Extend and launch" not in response.content.decode()
    assert launched_experiment.language_models.count() == 1


def test_an_extension_above_the_budget_warns_and_the_budget_holds(post, other_model):
    Experiment.objects.update(max_usd=Decimal("0.00001"))
    page = post(language_models=[other_model.pk])
    assert "The maximum cost is above the budget" in page.content.decode()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Choose something to add"),
        ({"samples": "1"}, "Enter a higher number"),
        ({"language_models": ["999999"]}, "not one of the available choices"),
    ],
)
def test_invalid_additions_are_reported_and_nothing_changes(post, launched_experiment, fields, message):
    n = Trial.objects.count()
    assert message in post(extend="1", **fields).content.decode()
    assert Trial.objects.count() == n


@pytest.mark.slow
def test_one_of_several_waves_can_be_chosen(post, launched_experiment, other_model, people):
    run_control.launch(launched_experiment, by=people["owner"], wave="march")
    fields = {"language_models": [other_model.pk], "wave": "1"}
    digest = post(**fields).context["preview"].digest
    assert post(**fields, preview_digest=digest, extend="1").status_code == 302
    assert list(Run.objects.filter(condition__model=other_model).values_list("wave__label", flat=True)) == ["march"]


def test_a_draft_leads_to_its_form(as_, people):
    factories.make_experiment("idea", owner=people["owner"])
    assert as_("owner").get("/experiments/idea/extend/").url == "/experiments/idea/edit/"
