"""The design page shows the smallest difference that a design can detect, and its assumptions."""

from runs_app.planning.power import Assumptions, compute_detectable_effect


def open_page(as_, lab, query=""):
    return as_("owner").get(f"/experiments/{lab.experiment.slug}/{query}")


def test_the_effect_is_shown_under_default_assumptions(lab, as_):
    text = open_page(as_, lab).content.decode()
    effect = compute_detectable_effect(3, 2)
    assert f"<strong>d = {effect.d:.2f}</strong>" in text
    assert f"With twice the items: d = {effect.with_twice_the_items:.2f}" in text
    assert "More items help more than more samples" in text
    assert "With so few items" in text


def test_other_assumptions_can_be_set_in_the_address(lab, as_):
    page = open_page(as_, lab, "?between=0.2&power=0.9")
    expected = compute_detectable_effect(3, 2, Assumptions(between=0.2, power=0.9))
    assert page.context["detectable"] == expected
    assert 'value="0.2"' in page.content.decode()


def test_invalid_assumptions_are_reported_and_replaced_by_defaults(lab, as_):
    page = open_page(as_, lab, "?between=3&correlation=no")
    assert page.status_code == 200
    assert page.context["detectable"] == compute_detectable_effect(3, 2)
    assert set(page.context["assumptions"].errors) == {"between", "correlation"}


def test_the_launch_page_shows_the_detectable_effect(lab, as_):
    page = as_("owner").get(f"/experiments/{lab.experiment.slug}/launch/").content.decode()
    assert "Detectable effect" in page
    assert f"d = {compute_detectable_effect(3, 2).d:.2f}" in page
