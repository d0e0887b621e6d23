import pytest

from evalsite.lib.rating_scale import RatingScale
from runs_app.llm.prompts import (
    ALLOWED,
    PromptError,
    build_response_format,
    compute_request_hash,
    find_warnings,
    format_hint,
    render,
    validate,
)

SEVEN = RatingScale(1, 7)
PLAIN = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{input}}"}]


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        (None, "at least one turn"),
        ([], "at least one turn"),
        ("{{input}}", "at least one turn"),
        (["x"], "Turn 1 must be"),
        ([{"role": "user", "content": "x", "name": "n"}], "nothing else"),
        ([{"role": "tool", "content": "x"}], "not 'tool'"),
        ([{"role": "user", "content": " "}], "must not be blank"),
        ([{"role": "user", "content": 5}], "must not be blank"),
        ([{"role": "user", "content": "{{inputs}}"}], "unknown variable {{inputs}}"),
        ([{"role": "user", "content": "{{target}}"}], "would show the model the right answer"),
        ([{"role": "system", "content": "{{image}}"}, PLAIN[1]], "only a user turn"),
        ([{"role": "user", "content": "{{image}} {{ image }}"}], "not 2 times"),
        ([PLAIN[1], PLAIN[0]], "Only the first turn may be a system turn"),
        ([PLAIN[1], {"role": "assistant", "content": "Sure:"}], "must be a user turn"),
    ],
)
def test_an_invalid_prompt_is_refused_with_a_reason(prompt, problem):
    assert problem in " ".join(validate(prompt))


def test_all_problems_are_reported_together():
    assert len(validate([{"role": "user", "content": "{{a}} {{b}}"}, {"role": "x", "content": "y"}])) == 3


def test_a_valid_prompt_has_no_problems():
    assert validate(PLAIN) == []
    assert validate([{"role": "user", "content": "{{meta.any}} {{image}} {{choices}} \\frac{1}{{2}}"}]) == []


def test_allowed_variables_can_be_restricted():
    assert validate(PLAIN, {"key"}, ["key"]) == ["Turn 2: unknown variable {{input}}. It may name {{key}}."]


def test_an_unknown_variable_is_reported_with_all_available_names():
    (error,) = validate([{"role": "user", "content": "{{inputs}}"}])
    assert error.startswith("Turn 1: unknown variable {{inputs}}. It may name {{input}}, ")
    assert all("{{" + name + "}}" in error for name in ALLOWED | {"meta.NAME"})


@pytest.mark.parametrize(
    ("content", "text", "images", "expected"),
    [
        ("{{input}}", True, False, []),
        ("{{input}}", True, True, ["{{image}}: the model will not see them"]),
        ("{{image}}", True, True, ["{{input}}: the model will not see it"]),
        ("{{image}}", False, False, ["every trial would fail"]),
        ("{{image}}", False, True, []),
    ],
)
def test_a_prompt_without_the_item_has_a_warning(content, text, images, expected):
    prompt = [{"role": "user", "content": content}]
    warnings = find_warnings(prompt, items_have_text=text, items_have_images=images)
    assert len(warnings) == len(expected)
    assert all(part in warning for part, warning in zip(expected, warnings, strict=True))


def test_a_rating_has_a_strict_schema_of_its_scale():
    schema = build_response_format("rating", SEVEN)["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"] == {"rating": {"type": "integer", "enum": [1, 2, 3, 4, 5, 6, 7]}}
    assert schema["schema"]["additionalProperties"] is False


def test_the_schema_of_a_long_scale_has_its_bounds():
    properties = build_response_format("rating", RatingScale(0, 100))["json_schema"]["schema"]["properties"]
    assert properties["rating"] == {"type": "integer", "minimum": 0, "maximum": 100}


def test_text_and_reasoned_answers_have_no_schema():
    assert build_response_format("text", None) is None
    assert build_response_format("rating_with_reasoning", SEVEN) is None


def test_hints_name_the_keys_and_the_ends_of_the_scale():
    assert format_hint("text", None) == ""
    assert "from 1 to 7" in format_hint("rating", SEVEN)
    assert "reasoning" not in format_hint("rating", SEVEN)
    assert '"rating": N, "reasoning"' in format_hint("rating_with_reasoning", RatingScale(-3, 3))


@pytest.mark.parametrize("ask", [format_hint, build_response_format])
def test_a_rating_needs_a_scale(ask):
    with pytest.raises(PromptError, match="needs a dimension with a scale"):
        ask("rating", None)


def test_the_salt_changes_the_request_and_never_the_prompt():
    requests = {compute_request_hash("m", render(PLAIN, {"input": "x"}, salt=salt), {}) for salt in ("a", "b", "")}
    assert len(requests) == 3


def test_a_request_is_its_model_messages_settings_and_schema():
    messages = render(PLAIN, {"input": "x"})
    hashes = [
        compute_request_hash("m", messages, {"temperature": 0}),
        compute_request_hash("n", messages, {"temperature": 0}),
        compute_request_hash("m", messages[1:], {"temperature": 0}),
        compute_request_hash("m", messages, {"temperature": 1}),
        compute_request_hash("m", messages, {"temperature": 0}, build_response_format("rating", SEVEN)),
    ]
    assert len(set(hashes)) == 5
    assert compute_request_hash("m", messages, {"temperature": 0.0}) == hashes[0]
