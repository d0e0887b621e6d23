import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.text.hashing import build_condition_id, canonical_json, hash_content, slugify_name

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def test_canonical_json_has_sorted_keys_no_spaces_and_plain_unicode():
    assert canonical_json({"b": [1, 2.5, None], "a": "naïve ☃", "B": True}) == (
        '{"B":true,"a":"naïve ☃","b":[1,2.5,null]}'
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # printf '%s' '{}' | sha256sum, and so on, computed without this program.
        ({}, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ("", "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126"),
        ([], "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
    ],
)
def test_hash_is_the_sha256_of_the_canonical_json(content, expected):
    assert hash_content(content) == expected


@pytest.mark.parametrize(("one", "other"), [(0, 0.0), (0, -0.0), (1, 1.0), (10**20, 1e20), ([2], (2.0,))])
def test_equal_numbers_have_equal_hashes(one, other):
    assert hash_content({"x": one}) == hash_content({"x": other})


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, "1"), (None, "null"), (0.1, 0.2), ([], {})])
def test_values_of_different_types_have_different_hashes(one, other):
    assert hash_content(one) != hash_content(other)


@given(documents)
def test_the_hash_does_not_depend_on_the_order_of_keys(document):
    shuffled = _reverse_keys(document)
    assert hash_content(shuffled) == hash_content(document)


def _reverse_keys(value):
    if isinstance(value, dict):
        return {key: _reverse_keys(value[key]) for key in reversed(value)}
    return [_reverse_keys(element) for element in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused(number):
    with pytest.raises(ValueError, match="no canonical JSON"):
        hash_content({"temperature": [number]})


@pytest.mark.parametrize("content", [{1: "x"}, {"x": {1, 2}}, b"bytes", {"x": object()}])
def test_values_without_a_json_form_are_refused(content):
    with pytest.raises(TypeError):
        hash_content(content)


def test_a_lone_surrogate_is_refused_with_its_position():
    with pytest.raises(ValueError, match="position 2"):
        hash_content({"text": "ab\ud800"})


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("GPT-5 mini", "gpt-5-mini"),
        ("openai/qwen3.5-vl", "openai-qwen3-5-vl"),
        ("Zürich  --  run_2", "zurich-run_2"),
        ("-_trim_-", "trim"),
        ("a" * 49 + " b", "a" * 49),
    ],
)
def test_names_become_slugs(name, slug):
    assert slugify_name(name) == slug


@given(st.text())
def test_a_slug_is_safe_and_stable_and_never_empty(name):
    slug = slugify_name(name)
    assert slug
    assert "--" not in slug
    assert slugify_name(slug) == slug


def test_names_without_ascii_have_different_slugs():
    assert slugify_name("模型") != slugify_name("提示")


def test_condition_id_is_the_slug_and_twelve_digits():
    assert build_condition_id("m_p_s", {}) == "m_p_s--44136fa355b3"
    with pytest.raises(ValueError, match="slug"):
        build_condition_id("", {})
