"""A condition id depends on exactly the content that a model receives."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs_app.planning.design import Cell, Facet, cross_facets, get_condition_hash

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
turns = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": texts})
prompts = st.fixed_dictionaries(
    {"messages": st.lists(turns, min_size=1, max_size=3), "answer_format": st.sampled_from(["text", "rating"])}
)
samplers = st.dictionaries(
    st.sampled_from(["temperature", "top_p", "max_tokens", "seed", "stop"]),
    st.integers(0, 9) | st.floats(0, 2) | texts,
)
models = st.fixed_dictionaries({"provider": st.sampled_from(["openai", "ollama_chat"]), "model": texts})
contents = st.tuples(models, prompts, samplers)
names = st.text(min_size=1, max_size=20)


def make_cell(content, name="n", key=None):
    return Cell(*(Facet(name, facet, key) for facet in content))


def are_equal(one, other):
    """Return whether two contents are equal as JSON, with numbers compared by value."""
    return json.loads(json.dumps(one)) == json.loads(json.dumps(other))


@settings(max_examples=80, deadline=None)
@given(contents, contents)
def test_the_identity_changes_exactly_if_the_content_changes(one, other):
    assert (
        get_condition_hash(make_cell(one).condition_id) == get_condition_hash(make_cell(other).condition_id)
    ) == are_equal(one, other)


@settings(max_examples=80, deadline=None)
@given(contents, st.data())
def test_a_change_of_any_facet_changes_the_identity(content, data):
    axis = data.draw(st.integers(0, 2))
    changed = data.draw((models, prompts, samplers)[axis].filter(lambda other: not are_equal(other, content[axis])))
    other = (*content[:axis], changed, *content[axis + 1 :])
    assert get_condition_hash(make_cell(content).condition_id) != get_condition_hash(make_cell(other).condition_id)


@settings(max_examples=80, deadline=None)
@given(contents, names, names, st.integers())
def test_the_identity_does_not_depend_on_names_or_primary_keys(content, one, other, key):
    assert get_condition_hash(make_cell(content, one).condition_id) == get_condition_hash(
        make_cell(content, other, key).condition_id
    )


@settings(max_examples=40, deadline=None)
@given(contents, names)
def test_a_condition_id_has_only_safe_characters_and_fits_its_column(content, name):
    condition_id = make_cell(content, name).condition_id
    assert len(condition_id) <= 255
    assert set(condition_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_known_content_has_a_known_condition_id():
    """Reproducible on any machine: printf '%s' '{"model":...}' | sha256sum gives the same twelve digits."""
    content = (
        {"provider": "openai", "model": "gpt-4o"},
        {"messages": [{"role": "user", "content": "{{input}}"}], "answer_format": "text"},
        {"temperature": 0.0, "max_tokens": 256},
    )
    assert make_cell(content, "gpt").condition_id == "gpt_gpt_gpt--de4692a2b813"


def test_the_identity_does_not_depend_on_key_order_or_number_format():
    one = ({"a": 1}, {"b": 2}, {"temperature": 1.0, "top_p": 0.5})
    other = ({"a": 1}, {"b": 2}, {"top_p": 0.5, "temperature": 1})
    assert make_cell(one).condition_id == make_cell(other).condition_id


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4), (0, 3, 4)])
def test_crossing_facets_creates_each_cell_once(sizes):
    axes = [
        [Facet(f"{axis}{index}", {axis: index}) for index in range(size)]
        for axis, size in zip("mps", sizes, strict=True)
    ]
    cells = cross_facets(*axes)
    assert len(cells) == len({cell.condition_id for cell in cells}) == sizes[0] * sizes[1] * sizes[2]
