"""Markup in answers, items, names and reasons is shown as text on every page."""

import pytest
from django.urls import reverse

from tests.integration.pages.conftest import NASTY

MARKUP = ("<script>alert", "<img src=x", "<u>", "<s>")


def build_addresses(lab):
    slug = [lab.experiment.slug]
    return {
        "home": reverse("home"),
        "list": reverse("experiment_list"),
        "detail": reverse("experiment_detail", args=slug),
        "preview": reverse("experiment_preview", args=slug),
        "progress": reverse("experiment_progress", args=slug),
        "launch": reverse("experiment_launch", args=slug),
        "edit": reverse("experiment_edit", args=slug),
        "new": reverse("experiment_new"),
        "run": reverse("run_detail", args=[lab.run.pk]),
        "trials": reverse("trial_list"),
        "trial": reverse("trial_detail", args=[lab.trial.pk]),
        "endpoints": reverse("endpoint_list"),
        "model": reverse("model_edit", args=[lab.model.pk]),
    }


@pytest.mark.slow
def test_no_markup_of_other_people_reaches_a_page(nasty_lab, as_):
    client = as_("operator")
    for name, address in build_addresses(nasty_lab).items():
        text = client.get(address).content.decode()
        assert not [markup for markup in MARKUP if markup in text], name


@pytest.mark.parametrize("name", ["detail", "preview", "trial", "trials", "run", "endpoints", "progress"])
def test_the_text_itself_is_shown_in_full(nasty_lab, as_, name):
    text = as_("operator").get(build_addresses(nasty_lab)[name]).content.decode()
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in text


def test_a_filter_value_is_escaped_in_the_page_and_its_links(nasty_lab, as_):
    address = reverse("trial_list")
    text = as_("operator").get(address, {"contains": NASTY, "item": NASTY, "error": '"><script>alert(2)</script>'})
    assert "<script>alert" not in text.content.decode()


def test_the_pages_carry_a_policy_without_inline_script(nasty_lab, as_):
    response = as_("operator").get(reverse("trial_detail", args=[nasty_lab.trial.pk]))
    policy = response.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe-inline" not in policy
    text = response.content.decode()
    assert 'style="' not in text
    assert "onclick" not in text
