"""Models drawn on the page of a design: ticked, editable, and stored with their candidates."""

from decimal import Decimal

import pytest

from runs_app.models import Experiment, LanguageModel
from tests import factories
from tests.integration.pages.test_designing_in_the_browser import NEW, entered, parts

__all__ = ["entered", "parts"]
DRAW = {"draw": "1", "draw-draw": "2", "draw-seed": "3", "draw-by": "price"}


@pytest.fixture
def site(parts):
    for name, price in {"cheap": 1, "middling": 4, "dear": 9}.items():
        factories.make_model(name, input_price=Decimal(price), output_price=Decimal(price))


def pressed(client, entered, **said):
    return client.post(NEW, {**entered, "language_models": [], **DRAW, **said})


def ticked(form):
    return {row.name for row in LanguageModel.objects.filter(pk__in=form["language_models"].value())}


def saved(client, entered, form, models):
    data = {**entered, "language_models": [model.pk for model in models], "draw-draw": "2", "draw-by": "price"}
    client.post(NEW, data | {"draw-pinned": form.drawing["pinned"].value()})
    return Experiment.objects.get()


def test_a_draw_ticks_its_models_says_why_and_saves_nothing(site, entered, as_):
    response = pressed(as_("researcher"), entered)
    made = response.context["made"]
    assert ticked(response.context["form"]) == set(made.draw.drawn)
    assert len(made.draw.drawn) == 2
    assert [line.candidate.name for line in made.lines] == ["cheap", "large", "small", "middling", "dear"]
    assert "band 1: $2 to $3" in response.content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.slow
def test_a_draw_is_kept_after_edits_of_the_choice_and_changed_prices(site, entered, as_):
    client = as_("researcher")
    form = pressed(client, entered).context["form"]
    drawn = form.drawing.pinned_draw.drawn
    LanguageModel.objects.update(input_price=Decimal(77))
    kept, stranger = LanguageModel.objects.get(name=drawn[0]), LanguageModel.objects.exclude(name__in=drawn).first()
    experiment = saved(client, entered, form, [kept, stranger])
    assert experiment.draws["models"]["drawn"] == drawn
    assert "77" not in str(experiment.draws)
    page = client.get(experiment.get_absolute_url()).context["draws"][0]
    assert (page.added, page.left_out) == ([stranger.name], [drawn[1]])
    again = client.get(f"/experiments/{experiment.slug}/edit/")
    assert again.context["made"].draw.drawn == drawn


@pytest.mark.slow
def test_a_new_draw_replaces_the_old_draw_and_a_manual_choice_removes_it(site, entered, as_):
    client = as_("researcher")
    form = pressed(client, entered).context["form"]
    chosen = list(LanguageModel.objects.filter(name__in=form.drawing.pinned_draw.drawn))
    page = f"/experiments/{saved(client, entered, form, chosen).slug}/edit/"
    anew = client.post(page, {**entered, "language_models": [], **DRAW, "draw-seed": "4"}).context["form"]
    data = {**entered, "language_models": [row.pk for row in anew["language_models"].field.queryset], "draw-draw": "2"}
    sent = {"draw-by": "price", "draw-pinned": anew.drawing["pinned"].value()}
    assert client.post(page, data | sent).status_code == 302
    assert Experiment.objects.get().draws["models"]["seed"] == 4
    assert client.post(page, data | {"draw-by": "price", "draw-pinned": ""}).status_code == 302
    assert Experiment.objects.get().draws == {}


def test_a_draw_is_discarded_if_no_drawn_model_is_chosen(site, entered, as_):
    client = as_("researcher")
    form = pressed(client, entered).context["form"]
    others = LanguageModel.objects.exclude(name__in=form.drawing.pinned_draw.drawn)
    assert saved(client, entered, form, others).draws == {}


@pytest.mark.slow
def test_a_manipulated_draw_is_refused(site, entered, as_):
    client = as_("researcher")
    pinned = pressed(client, entered).context["form"].drawing["pinned"].value()
    response = client.post(NEW, {**entered, "draw-pinned": f"x{pinned}"})
    assert "The draw is no longer valid. Draw again." in response.content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("said", "field", "message"),
    [
        ({"draw-draw": ""}, "draw", "Enter the number of models."),
        ({"draw-draw": "40"}, "draw", "cannot draw 40 of 5 models"),
        ({"draw-wanted": "small, nobody"}, "wanted", "no active model has the name nobody"),
        ({"draw-by": "family", "draw-bands": "2"}, "bands", "bands only apply to a draw by price"),
        ({"draw-seed": "x"}, "seed", "whole number"),
    ],
)
def test_an_impossible_draw_is_an_error_at_its_field(site, entered, as_, said, field, message):
    response = pressed(as_("researcher"), entered, **said)
    assert message in " ".join(response.context["form"].drawing.errors[field])
    assert message in response.content.decode()
    assert response.context["made"] is None


def test_a_design_without_a_draw_is_saved_as_before(entered, as_):
    as_("researcher").post(NEW, {**entered, "draw-seed": "42", "draw-by": "price"})
    assert Experiment.objects.get().draws == {}
