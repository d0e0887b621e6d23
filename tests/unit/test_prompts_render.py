import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.rating_scale import RatingScale
from runs_app.llm import prompts
from runs_app.llm.prompts import (
    ALLOWED,
    PromptError,
    RequestTooLong,
    build_variables,
    count_rendered_chars,
    find_variables,
    get_choice_letter,
    make_salt,
    render,
    substitute,
    validate,
)

IMAGE_URL = "data:image/png;base64,AAAA"
SEVEN = RatingScale(1, 7, {7: "Very high", 1: "Very low"})


def build_system_turn(content):
    return {"role": "system", "content": content}


def build_user_turn(content):
    return {"role": "user", "content": content}


def build_assistant_turn(content):
    return {"role": "assistant", "content": content}


def test_variables_are_listed_once_in_order():
    assert find_variables("{{b}} {{ a }} {{b}} {{meta.exam year}} {{é}} {c} {{1x}} {{}} {{x y}}") == (
        "b",
        "a",
        "meta.exam year",
        "é",
    )


def test_every_variable_has_its_value():
    variables = build_variables(
        key="q1",
        input="Which?",
        category="logic",
        choices=["yes", "no"],
        metadata={"year": 2024, "note": "n", "none": None, "tags": ["a", 1.0]},
        dimension="valence",
        dimension_instructions="How pleasant?",
        scale=SEVEN,
    )
    template = (
        "{{key}}|{{input}}|{{category}}|{{choices}}|{{dimension}}|{{dimension_instructions}}|{{scale_min}}|{{scale_max}}"
        "|{{scale_labels}}|{{meta.year}}|{{meta.note}}|{{meta.none}}|{{meta.tags}}"
    )
    assert substitute(template, variables) == (
        'q1|Which?|logic|A) yes\nB) no|valence|How pleasant?|1|7|1 = Very low, 7 = Very high|2024|n||["a",1]'
    )
    assert set(find_variables(template)) | {"image"} >= ALLOWED


@given(st.text(), st.text(alphabet="{}input\\$mage. "), st.text(alphabet="{}"))
def test_placeholders_within_a_value_are_not_substituted(category, key, braces):
    variables = build_variables(key=key, input="{{key}}{{image}}" + braces, category=category)
    [message] = render([build_user_turn("<{{input}}|{{category}}|{{key}}>")], variables, IMAGE_URL)
    assert message["content"] == "<{{key}}{{image}}" + braces + f"|{category}|{key}>"


def test_latex_in_a_template_survives():
    template = r"\frac{1}{2} x^{{2}} \text{{} } {{{input}}} {{ not this }}"
    assert (
        substitute(template, {"input": r"\sqrt{{n}}"}) == r"\frac{1}{2} x^{{2}} \text{{} } {\sqrt{{n}}} {{ not this }}"
    )


def test_a_template_can_access_only_its_variables():
    with pytest.raises(PromptError, match=r"input\.__class__"):
        substitute("{{input.__class__}}", build_variables(key="k", input="i"))
    assert substitute("{input.__class__} {0} %s ${input} {% x %}", {}) == "{input.__class__} {0} %s ${input} {% x %}"


def test_the_image_is_at_its_placeholder():
    prompt = [build_system_turn("Look."), build_user_turn("Before {{input}} {{image}} after")]
    assert render(prompt, build_variables(key="k", input="text"), IMAGE_URL) == [
        {"role": "system", "content": "Look."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Before text "},
                {"type": "image_url", "image_url": {"url": IMAGE_URL}},
                {"type": "text", "text": " after"},
            ],
        },
    ]


def test_a_turn_with_only_an_image_has_no_blank_text():
    [message] = render([build_user_turn("{{image}}\n")], {}, IMAGE_URL)
    assert [part["type"] for part in message["content"]] == ["image_url"]


def test_without_a_placeholder_the_image_is_not_sent():
    assert render([build_user_turn("Hello")], {}, IMAGE_URL) == [{"role": "user", "content": "Hello"}]


def test_hint_and_salt_end_the_last_user_turn():
    prompt = [build_user_turn("example"), build_assistant_turn("answer"), build_user_turn("{{input}}")]
    messages = render(prompt, {"input": "question"}, hint="Say JSON.", salt="0123456789")
    assert [message["content"] for message in messages] == [
        "example",
        "answer",
        "question\n\nSay JSON.\n\n[0123456789]",
    ]


@pytest.mark.parametrize(("content", "text"), [("Rate: {{image}}", "[s]"), ("{{image}} now", " now\n\n[s]")])
def test_the_salt_is_text_at_the_end_of_a_turn_with_an_image(content, text):
    [message] = render([build_user_turn(content)], {}, IMAGE_URL, salt="s")
    assert message["content"][-1] == {"type": "text", "text": text}


def test_the_salt_does_not_change_the_text_before_it():
    prompt = [build_system_turn("S"), build_user_turn("{{input}}")]
    plain, salted = (render(prompt, {"input": "x"}, salt=value)[-1]["content"] for value in ("", "abc"))
    assert salted.startswith(plain)


def test_a_blank_system_turn_is_omitted():
    prompt = [build_system_turn("{{dimension_instructions}}"), build_user_turn("{{input}}")]
    assert len(render(prompt, build_variables(key="k", input="x"))) == 1


@pytest.mark.parametrize(
    ("prompt", "variables", "message"),
    [
        ([build_user_turn("{{meta.year}}")], {}, r"\{\{meta\.year\}\} has no value"),
        ([build_user_turn("{{image}}")], {}, "this item has no image"),
        ([build_user_turn("{{input}}")], {"input": " \n"}, r"turn 1 \(user\) is blank after rendering"),
    ],
)
def test_an_unrenderable_prompt_is_refused_with_a_reason(prompt, variables, message):
    with pytest.raises(PromptError, match=message):
        render(prompt, variables)


@given(
    st.text().filter(str.strip),
    st.sampled_from(["Q: {{input}}", "{{image}} {{input}}", "{{input}}{{image}}"]),
    st.booleans(),
)
def test_valid_prompts_render_completely(value, content, with_system):
    prompt = [build_system_turn("s")] * with_system + [build_user_turn(content)]
    assert validate(prompt) == []
    parts = render(prompt, build_variables(key="k", input=value), IMAGE_URL)[-1]["content"]
    joined = parts if isinstance(parts, str) else "".join(part.get("text", "") for part in parts)
    assert value.strip() in joined


def test_a_salt_differs_between_trials_and_is_equal_in_retries():
    salts = {
        make_salt(run, key, dimension, index)
        for run in (1, 2)
        for key in "ab"
        for dimension in ("", "v")
        for index in (0, 1)
    }
    assert len(salts) == 16
    assert make_salt(7, "Bark 5", "arousal", 3) == make_salt("7", "Bark 5", "arousal", 3) == "394d8787e3"
    assert all(len(value) == 10 for value in salts)


@pytest.mark.parametrize(("at", "letter"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (702, "AAA")])
def test_choices_are_lettered_as_in_spreadsheets(at, letter):
    assert get_choice_letter(at) == letter


def test_a_request_is_measured_before_it_is_rendered():
    prompt = [{"role": "system", "content": "Hi {{key}}"}, {"role": "user", "content": "{{input}} {{ input }}!"}]
    variables = build_variables(key="k1", input="x" * 100)
    messages = render(prompt, variables)
    assert count_rendered_chars(prompt, variables) == sum(len(message["content"]) for message in messages)
    with pytest.raises(RequestTooLong, match="the request would have 207 characters; at most 206 are sent"):
        render(prompt, variables, max_chars=206)


def test_nothing_is_substituted_in_a_request_that_is_too_long(monkeypatch):
    monkeypatch.setattr(prompts, "substitute", None)
    with pytest.raises(RequestTooLong, match="80,000,000 characters; at most 2,000,000"):
        render([{"role": "user", "content": "{{input}}" * 400}], build_variables(key="k", input="x" * 200_000))
