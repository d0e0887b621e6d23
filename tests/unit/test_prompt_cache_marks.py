"""Cache marks after the part of a request that all items share; the text of the request does not change."""

from hypothesis import given
from hypothesis import strategies as st

from runs_app.llm.prompts import mark_head, render

LONG = "Judge with care. " * 250
MARK = {"type": "ephemeral"}


def build_turns(*contents):
    roles = ["system", "user"] if len(contents) == 2 else ["user"]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def render_marked(prompt, variables, image=None, shared=()):
    messages = render(prompt, variables, image, hint="Answer in one word.", salt="0123456789")
    return messages, mark_head(prompt, variables, messages, shared)


def join_text(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def list_marked_texts(messages):
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["text"] for part in parts if part.get("cache_control") == MARK]


def test_the_marked_part_ends_before_the_item():
    plain, with_mark = render_marked(build_turns(LONG + "Question: {{input}}"), {"input": "2 + 2?"})
    assert list_marked_texts(with_mark) == [LONG + "Question: "]
    assert [join_text(message) for message in with_mark] == [join_text(message) for message in plain]


def test_the_previous_turn_is_marked_if_a_turn_begins_with_the_item():
    _, with_mark = render_marked(build_turns(LONG, "{{input}} Why?"), {"input": "2 + 2?"})
    assert list_marked_texts(with_mark) == [LONG]
    assert with_mark[1]["content"].startswith("2 + 2? Why?")


def test_variables_of_dimensions_and_rubrics_belong_to_the_shared_part():
    prompt = build_turns(LONG + "{{dimension_instructions}} {{criteria}} {{answer}}")
    variables = {"dimension_instructions": "How warm?", "criteria": "Be strict.", "answer": "42"}
    _, with_mark = render_marked(prompt, variables, shared={"criteria"})
    assert list_marked_texts(with_mark) == [LONG + "How warm? Be strict. "]


def test_an_image_comes_after_the_mark():
    prompt = build_turns(LONG + "Look: {{image}} What is it?")
    plain, with_mark = render_marked(prompt, {}, "data:image/png;base64,AA==")
    first, image, rest = with_mark[0]["content"]
    assert (first["text"], first["cache_control"]) == (LONG + "Look: ", MARK)
    assert [image, rest] == plain[0]["content"][1:]


def test_short_or_empty_shared_parts_and_prompts_without_items_are_not_marked():
    for prompt in (build_turns("Question: {{input}}"), build_turns("{{input}} " + LONG), build_turns(LONG)):
        plain, with_mark = render_marked(prompt, {"input": "2 + 2?"})
        assert with_mark == plain


def test_a_blank_system_turn_is_omitted_and_not_marked():
    _, with_mark = render_marked(build_turns("{{dimension}}", LONG + "{{input}}"), {"dimension": " ", "input": "?"})
    assert [message["role"] for message in with_mark] == ["user"]
    assert list_marked_texts(with_mark) == [LONG]


@given(st.text(), st.text(alphabet="ab {}\n", max_size=40), st.text(min_size=1))
def test_marks_never_change_the_text(head, middle, item):
    prompt = build_turns(LONG + head.replace("{{", "") + middle.replace("{{", "") + "|{{input}}")
    plain, with_mark = render_marked(prompt, {"input": item})
    assert [join_text(message) for message in with_mark] == [join_text(message) for message in plain]
    assert len(list_marked_texts(with_mark)) == 1
