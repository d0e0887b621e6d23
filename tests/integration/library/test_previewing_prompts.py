"""The preview of a prompt in the library: the exact messages for an item, and why it cannot be sent."""

import pytest
from django.urls import reverse

from datasets_app.models import Asset
from tests.factories.drafts import make_draft_dimension, make_question_prompt, make_questions

pytestmark = pytest.mark.django_db


def preview(web, prompt, choice):
    """Preview the text of this prompt, as its editor sends it."""
    texts = {turn["role"]: turn["content"] for turn in prompt.messages}
    data = {"answer_format": prompt.answer_format, "system": "", "messages": "", **texts}
    return web.post(reverse("library_preview", args=["prompts"]), data | choice)


def test_the_preview_shows_the_exact_messages_of_an_item(as_user, researcher):
    turns = [{"role": "user", "content": "{{input}} {{dimension_instructions}} {{scale_min}}-{{scale_max}}"}]
    prompt = make_question_prompt(messages=turns, answer_format="rating", status="draft")
    dataset, joy = make_questions(["one?", "<b>two</b>?"]), make_draft_dimension("joy", high=5)
    page = preview(as_user(researcher), prompt, {"dataset": dataset.pk, "item": "q000001", "dimension": joy.pk})
    (turn,) = page.context["preview"]["turns"].turns
    assert turn.text.startswith("<b>two</b>? How much joy? 1-5\n\nAnswer with JSON alone")
    assert "&lt;b&gt;two&lt;/b&gt;" in page.content.decode()


def test_the_preview_shows_the_image_and_the_text_after_it(as_user, researcher):
    image = Asset.objects.create(sha256="a" * 64, format="png", width=2, height=1, size=1)
    prompt = make_question_prompt(messages=[{"role": "user", "content": "{{image}} What is this?"}])
    dataset = make_questions(1, image=image)
    page = preview(as_user(researcher), prompt, {"dataset": dataset.pk}).content.decode()
    assert f'src="{image.url}"' in page
    assert "What is this?" in page


def test_the_preview_says_why_an_item_cannot_be_sent(as_user, researcher):
    prompt, dataset = make_question_prompt(messages=[{"role": "user", "content": "{{image}}"}]), make_questions(1)
    web = as_user(researcher)
    page = preview(web, prompt, {"dataset": dataset.pk}).content.decode()
    assert "this item has no image" in page
    assert "every trial would fail" in page
    assert "no item with this key" in preview(web, prompt, {"dataset": dataset.pk, "item": "nothing"}).content.decode()
