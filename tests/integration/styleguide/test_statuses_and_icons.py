"""Colour is never the only signal, and every named icon exists."""

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.staticfiles import finders
from django.db import models
from django.template import engines

from evalsite.lib.web import statuses
from evalsite.lib.web.statuses import ICONS, SPRITE

WORDS = ["pending", "running", "done", "failed", "cancelled", "paused", "draft", "approved", "archived"]
ROOT = Path(__file__).resolve().parents[3]


def render(template, **context):
    return engines["django"].from_string(template).render(context)


def test_nine_statuses_have_nine_shapes():
    assert len({statuses.get_look(word).icon for word in WORDS}) == len(WORDS)


def test_every_look_has_an_icon_and_a_tone_of_the_style_sheet():
    css = Path(finders.find("evalsite/components.css")).read_text()
    for look in {*statuses.LOOKS.values(), statuses.UNKNOWN}:
        assert look.icon in ICONS
        assert f".tone-{look.tone} {{" in css


def test_every_status_that_a_model_can_have_has_a_look():
    stored = {
        str(value)
        for model in apps.get_models()
        if model._meta.app_label in {"datasets_app", "runs_app", "grading_app"}
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField) and field.name == "status" and field.choices
        for value, _ in field.choices
    }
    assert {"draft", "approved", "done"} <= stored
    assert stored <= statuses.LOOKS.keys()


def test_a_badge_shows_the_label_of_a_choice():
    class Colour(models.TextChoices):
        IN_PROGRESS = "in_progress", "Under way"

    html = render("{% status_badge status %}", status=Colour.IN_PROGRESS)
    assert "Under way" in html
    assert "tone-live" in html


def test_a_word_without_a_look_is_shown_as_a_word():
    html = render("{% status_badge 'gone_fishing' %}")
    assert "Gone fishing" in html
    assert "tone-neutral" in html


@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_status_is_a_dash(missing):
    assert "–" in render("{% status_badge status %}", status=missing)


def test_the_sprite_contains_exactly_the_listed_icons():
    sprite = Path(finders.find(SPRITE)).read_text()
    assert set(re.findall(r'<symbol id="([^"]+)"', sprite)) == ICONS


def test_every_icon_named_in_a_template_exists():
    names = set()
    for template in (ROOT / "templates").rglob("*.html"):
        tag = r'{% (?:icon|empty_state "[^"]+"|notice "[a-z]+"|action \S+ "[^"]+") [\"\']([a-z0-9-]+)[\"\']'
        names |= set(re.findall(tag, template.read_text()))
        names |= set(re.findall(r"icon(?:_name)?=[\"']([a-z0-9-]+)[\"']", template.read_text()))
    assert {"download", "person-circle", "database"} <= names
    assert names <= ICONS


UTILITY = re.compile(r"(m|p)[tbsexy]?-\d|(d|flex|align|justify|gap|fw|text|w|h|float|col|row)-[a-z0-9-]+")


def test_every_utility_class_in_a_template_has_a_rule():
    rules = "".join(path.read_text() for path in (ROOT / "evalsite/static/evalsite").glob("*.css"))
    used = {
        name
        for template in (ROOT / "templates").rglob("*.html")
        for value in re.findall(r'class="([^"]*)"', template.read_text())
        for name in value.split()
        if UTILITY.fullmatch(name)
    }
    assert {"mt-3", "d-flex", "gap-2"} <= used
    assert {name for name in used if not re.search(rf"\.{name}\b", rules)} == set()
