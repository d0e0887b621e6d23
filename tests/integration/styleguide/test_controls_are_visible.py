"""Bidirectional and terminal controls are visible on every page, and copied unchanged."""

import re

import pytest
from django.http import HttpResponse
from django.urls import reverse

from evalsite.lib.text.characters import mark_html, mark_text
from evalsite.middleware import ControlCharactersMiddleware
from tests.integration.pages.conftest import lab, lab_of_file, people, people_of_file  # type: ignore[attr-defined]  # noqa: F401

EVIL = "safe\u202egnp.exe\u202c \x1b[31mred\u2066\x07"
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]")


def test_each_control_has_a_mark_with_its_name():
    marked = mark_html("<p>a\u202eb\x1bc</p>")
    assert (
        marked
        == '<p>a<span class="control-mark" data-code="8238" title="U+202E right-to-left override">⟦U+202E⟧</span>'
        'b<span class="control-mark" data-code="27" title="U+001B control character">⟦U+001B⟧</span>c</p>'
    )


def test_in_an_attribute_or_a_title_the_mark_is_text():
    marked = mark_html('<title>a\u202e</title><a title="b\u202e" data-confirm="c\x1b">d</a><option>e\u2066</option>')
    assert marked == (
        '<title>a⟦U+202E⟧</title><a title="b⟦U+202E⟧" data-confirm="c⟦U+001B⟧">d</a><option>e⟦U+2066⟧</option>'
    )


def test_form_values_keep_their_characters():
    page = '<input name="a" value="x\u202ey"><textarea name="b">\n1 < 2 \u202e</textarea>'
    page += '<option value="\u202e">z</option>'
    assert mark_html(page) == page


def test_plain_text_of_any_script_stays():
    page = "<p>مرحبا שלום 👩\u200d👩\u200d👧 می\u200cخواهم tab\tline\r\n</p>"
    assert mark_html(page) is page
    assert mark_text(page) == page


def test_a_text_of_only_controls_does_not_multiply_the_size_of_the_page():
    marked = mark_html("<p>" + "\u202e\x1b" * 20_000 + "</p>")
    assert not CONTROLS.search(marked)
    assert len(marked) < 500_000


def test_other_kinds_of_answers_stay_exact():
    def get_answer(kind):
        return ControlCharactersMiddleware(lambda request: HttpResponse(EVIL, content_type=kind))(None).content.decode()

    assert get_answer("text/plain; charset=utf-8") == get_answer("application/json") == EVIL
    assert not CONTROLS.search(get_answer("text/html; charset=utf-8"))
    assert not CONTROLS.search(get_answer("image/svg+xml"))


@pytest.mark.slow
@pytest.mark.django_db
def test_no_page_shows_a_control_of_a_model_an_item_a_name_or_an_error(lab, as_):  # noqa: F811
    experiment, trial = lab.experiment, lab.trial
    type(experiment).objects.filter(pk=experiment.pk).update(title=EVIL, description=EVIL)
    type(trial).objects.filter(pk=lab.failed.pk).update(error=EVIL, error_class="bad\u202e")
    type(lab.model).objects.filter(pk=lab.model.pk).update(price_source=EVIL)
    lab.draft.items.update(input=EVIL, category=EVIL, target=EVIL)
    type(lab.draft).objects.filter(pk=lab.draft.pk).update(title=EVIL, source=EVIL)
    item = lab.draft.items.first()
    slug = experiment.slug
    for address in (
        reverse("experiment_list"), reverse("experiment_detail", args=[slug]), reverse("trial_list"),
        reverse("trial_detail", args=[lab.failed.pk]), reverse("dataset_list"),
        reverse("dataset_detail", args=[lab.draft.slug, 1]), reverse("dataset_table", args=[lab.draft.slug, 1]),
        reverse("item_detail", args=[lab.draft.slug, 1, item.pk]), reverse("endpoint_list"),
        reverse("experiment_progress", args=[slug]), reverse("experiment_results", args=[slug]),
    ):  # fmt: skip
        page = as_("owner").get(address).content.decode()
        values = re.compile(r"<textarea.*?</textarea>|\bvalue=\"[^\"]*\"", re.DOTALL)
        assert not CONTROLS.search(values.sub("", page)), address
    assert "⟦U+202E⟧" in as_("owner").get(reverse("trial_detail", args=[lab.failed.pk])).content.decode()
