"""What all items share stands first in a request, and is marked for a provider's cache; no word is changed."""

from hypothesis import given
from hypothesis import strategies as st

from runs_app.llm.prompts import mark_head, render

LONG = "Judge with care. " * 250
MARK = {"type": "ephemeral"}


def turns(*contents):
    roles = ["system", "user"] if len(contents) == 2 else ["user"]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def marked(prompt, variables, image=None, shared=()):
    messages = render(prompt, variables, image, hint="Answer in one word.", salt="0123456789")
    return messages, mark_head(prompt, variables, messages, shared)


def said(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def marks(messages):
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["text"] for part in parts if part.get("cache_control") == MARK]


def test_the_mark_ends_where_the_item_begins():
    plain, with_mark = marked(turns(LONG + "Question: {{input}}"), {"input": "2 + 2?"})
    assert marks(with_mark) == [LONG + "Question: "]
    assert [said(message) for message in with_mark] == [said(message) for message in plain]


def test_a_turn_that_begins_with_the_item_leaves_the_mark_to_the_turn_before():
    _, with_mark = marked(turns(LONG, "{{input}} Why?"), {"input": "2 + 2?"})
    assert marks(with_mark) == [LONG]
    assert with_mark[1]["content"].startswith("2 + 2? Why?")


def test_variables_of_dimensions_and_rubrics_are_shared():
    prompt = turns(LONG + "{{dimension_instructions}} {{criteria}} {{answer}}")
    variables = {"dimension_instructions": "How warm?", "criteria": "Be strict.", "answer": "42"}
    _, with_mark = marked(prompt, variables, shared={"criteria"})
    assert marks(with_mark) == [LONG + "How warm? Be strict. "]


def test_an_image_comes_after_the_mark():
    prompt = turns(LONG + "Look: {{image}} What is it?")
    plain, with_mark = marked(prompt, {}, "data:image/png;base64,AA==")
    first, image, rest = with_mark[0]["content"]
    assert (first["text"], first["cache_control"]) == (LONG + "Look: ", MARK)
    assert [image, rest] == plain[0]["content"][1:]


def test_a_short_head_a_head_of_nothing_and_a_prompt_without_items_are_not_marked():
    for prompt in (turns("Question: {{input}}"), turns("{{input}} " + LONG), turns(LONG)):
        plain, with_mark = marked(prompt, {"input": "2 + 2?"})
        assert with_mark == plain


def test_a_blank_system_turn_is_left_out_and_counts_for_nothing():
    _, with_mark = marked(turns("{{dimension}}", LONG + "{{input}}"), {"dimension": " ", "input": "?"})
    assert [message["role"] for message in with_mark] == ["user"]
    assert marks(with_mark) == [LONG]


@given(st.text(), st.text(alphabet="ab {}\n", max_size=40), st.text(min_size=1))
def test_whatever_the_words_none_is_lost_or_added(head, middle, item):
    prompt = turns(LONG + head.replace("{{", "") + middle.replace("{{", "") + "|{{input}}")
    plain, with_mark = marked(prompt, {"input": item})
    assert [said(message) for message in with_mark] == [said(message) for message in plain]
    assert len(marks(with_mark)) == 1
