"""Cache marks after the part of a request that all items share; the text of the request does not change."""

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


def test_the_marked_part_ends_before_the_item():
    plain, with_mark = marked(turns(LONG + "Question: {{input}}"), {"input": "2 + 2?"})
    assert marks(with_mark) == [LONG + "Question: "]
    assert [said(message) for message in with_mark] == [said(message) for message in plain]


def test_the_previous_turn_is_marked_if_a_turn_begins_with_the_item():
    _, with_mark = marked(turns(LONG, "{{input}} Why?"), {"input": "2 + 2?"})
    assert marks(with_mark) == [LONG]
    assert with_mark[1]["content"].startswith("2 + 2? Why?")


def test_variables_of_dimensions_and_rubrics_belong_to_the_shared_part():
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


def test_short_or_empty_shared_parts_and_prompts_without_items_are_not_marked():
    for prompt in (turns("Question: {{input}}"), turns("{{input}} " + LONG), turns(LONG)):
        plain, with_mark = marked(prompt, {"input": "2 + 2?"})
        assert with_mark == plain


def test_a_blank_system_turn_is_omitted_and_not_marked():
    _, with_mark = marked(turns("{{dimension}}", LONG + "{{input}}"), {"dimension": " ", "input": "?"})
    assert [message["role"] for message in with_mark] == ["user"]
    assert marks(with_mark) == [LONG]


@given(st.text(), st.text(alphabet="ab {}\n", max_size=40), st.text(min_size=1))
def test_marks_never_change_the_text(head, middle, item):
    prompt = turns(LONG + head.replace("{{", "") + middle.replace("{{", "") + "|{{input}}")
    plain, with_mark = marked(prompt, {"input": item})
    assert [said(message) for message in with_mark] == [said(message) for message in plain]
    assert len(marks(with_mark)) == 1
