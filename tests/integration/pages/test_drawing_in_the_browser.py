"""Models drawn on the page of a design: ticked, editable, and stored with their candidates."""

from decimal import Decimal

import pytest

from runs_app.models import Experiment, LanguageModel
from tests import factories
from tests.integration.pages.test_designing_in_the_browser import NEW, form_data, parts

__all__ = ["form_data", "parts"]
DRAW = {"draw": "1", "draw-draw": "2", "draw-seed": "3", "draw-by": "price"}


@pytest.fixture
def site(parts):
    for name, price in {"cheap": 1, "middling": 4, "dear": 9}.items():
        factories.make_model(name, input_price=Decimal(price), output_price=Decimal(price))


def press_draw(client, form_data, **fields):
    return client.post(NEW, {**form_data, "language_models": [], **DRAW, **fields})


def list_ticked(form):
    return {row.name for row in LanguageModel.objects.filter(pk__in=form["language_models"].value())}


def save_design(client, form_data, form, models):
    data = {**form_data, "language_models": [model.pk for model in models], "draw-draw": "2", "draw-by": "price"}
    client.post(NEW, data | {"draw-pinned": form.drawing["pinned"].value()})
    return Experiment.objects.get()


def test_a_draw_ticks_its_models_says_why_and_saves_nothing(site, form_data, as_):
    response = press_draw(as_("researcher"), form_data)
    draw = response.context["draw_lines"]
    assert list_ticked(response.context["form"]) == set(draw.draw.drawn)
    assert len(draw.draw.drawn) == 2
    assert [line.candidate.name for line in draw.lines] == ["cheap", "large", "small", "middling", "dear"]
    assert "band 1: $2 to $3" in response.content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.slow
def test_a_draw_is_kept_after_edits_of_the_choice_and_changed_prices(site, form_data, as_):
    client = as_("researcher")
    form = press_draw(client, form_data).context["form"]
    names = form.drawing.pinned_draw.drawn
    LanguageModel.objects.update(input_price=Decimal(77))
    kept_model, stranger = (
        LanguageModel.objects.get(name=names[0]),
        LanguageModel.objects.exclude(name__in=names).first(),
    )
    experiment = save_design(client, form_data, form, [kept_model, stranger])
    assert experiment.draws["models"]["drawn"] == names
    assert "77" not in str(experiment.draws)
    page = client.get(experiment.get_absolute_url()).context["draws"][0]
    assert (page.added, page.left_out) == ([stranger.name], [names[1]])
    edit_page = client.get(f"/experiments/{experiment.slug}/edit/")
    assert edit_page.context["draw_lines"].draw.drawn == names


@pytest.mark.slow
def test_a_new_draw_replaces_the_old_draw_and_a_manual_choice_removes_it(site, form_data, as_):
    client = as_("researcher")
    form = press_draw(client, form_data).context["form"]
    chosen = list(LanguageModel.objects.filter(name__in=form.drawing.pinned_draw.drawn))
    page = f"/experiments/{save_design(client, form_data, form, chosen).slug}/edit/"
    anew = client.post(page, {**form_data, "language_models": [], **DRAW, "draw-seed": "4"}).context["form"]
    data = {
        **form_data,
        "language_models": [row.pk for row in anew["language_models"].field.queryset],
        "draw-draw": "2",
    }
    second_form = {"draw-by": "price", "draw-pinned": anew.drawing["pinned"].value()}
    assert client.post(page, data | second_form).status_code == 302
    assert Experiment.objects.get().draws["models"]["seed"] == 4
    assert client.post(page, data | {"draw-by": "price", "draw-pinned": ""}).status_code == 302
    assert Experiment.objects.get().draws == {}


def test_a_draw_is_discarded_if_no_drawn_model_is_chosen(site, form_data, as_):
    client = as_("researcher")
    form = press_draw(client, form_data).context["form"]
    undrawn = LanguageModel.objects.exclude(name__in=form.drawing.pinned_draw.drawn)
    assert save_design(client, form_data, form, undrawn).draws == {}


@pytest.mark.slow
def test_a_manipulated_draw_is_refused(site, form_data, as_):
    client = as_("researcher")
    pinned = press_draw(client, form_data).context["form"].drawing["pinned"].value()
    response = client.post(NEW, {**form_data, "draw-pinned": f"x{pinned}"})
    assert "The draw is no longer valid. Draw again." in response.content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"draw-draw": ""}, "draw", "Enter the number of models."),
        ({"draw-draw": "40"}, "draw", "cannot draw 40 of 5 models"),
        ({"draw-selectors": "small, nobody"}, "selectors", "no active model has the name nobody"),
        ({"draw-by": "family", "draw-bands": "2"}, "bands", "bands only apply to a draw by price"),
        ({"draw-seed": "x"}, "seed", "whole number"),
    ],
)
def test_an_impossible_draw_is_an_error_at_its_field(site, form_data, as_, fields, field, message):
    response = press_draw(as_("researcher"), form_data, **fields)
    assert message in " ".join(response.context["form"].drawing.errors[field])
    assert message in response.content.decode()
    assert response.context["draw_lines"] is None


def test_a_design_without_a_draw_is_saved_as_before(form_data, as_):
    as_("researcher").post(NEW, {**form_data, "draw-seed": "42", "draw-by": "price"})
    assert Experiment.objects.get().draws == {}
