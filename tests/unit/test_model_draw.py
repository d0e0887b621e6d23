"""Draws of models: determined by names, prices and seed, proportional by stratum, with a verifiable record."""

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from datasets_app.sampling import allocate_proportionally
from runs_app.experiment_files.model_draw import Candidate, Draw, DrawError, DrawSpec, draw

NOON = "2026-03-01T12:00:00+00:00"
PROVIDERS = ("openai", "anthropic", "hosted_vllm")
names = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True), min_size=1, max_size=25, unique=True)
prices = st.decimals(0, 100, places=2, allow_nan=False).map(str)
seeds = st.integers(0, 2**31)


def build_candidate(name, price="1", provider="openai", **fields):
    prices_ = {"input_price": price, "output_price": price}
    return Candidate.model_validate(
        {"name": name, "endpoint": "lab", "provider": provider, "model": f"maker/{name}", **prices_, **fields}
    )


def build_spec(**fields):
    return DrawSpec.model_validate(fields)


@st.composite
def sites(draw_):
    return [build_candidate(name, draw_(prices), draw_(st.sampled_from(PROVIDERS))) for name in draw_(names)]


def list_strata(made):
    return {stratum.name: [one.name for one in stratum.candidates] for stratum in made.strata}


@pytest.mark.slow
@given(sites(), seeds, st.data())
def test_a_draw_does_not_depend_on_the_order_of_candidates(site, seed, data):
    draw_spec = build_spec(draw=data.draw(st.integers(1, len(site))), seed=seed)
    shuffled = data.draw(st.permutations(site))
    assert draw(draw_spec, site, at=NOON) == draw(draw_spec, shuffled, at=NOON)


@given(sites(), seeds, st.sampled_from(["price", "provider", "family", "none"]), st.data())
def test_each_stratum_gets_its_share_and_at_least_one_model(site, seed, by, data):
    fewest = 1 if by == "price" else len({getattr(model, by) for model in site}) if by != "none" else 1
    n = data.draw(st.integers(fewest, len(site)))
    result = draw(build_spec(draw=n, seed=seed, by=by), site, at=NOON)
    strata = list_strata(result)
    shares = allocate_proportionally({name: len(members) for name, members in strata.items()}, n)
    assert {name: len(set(members) & set(result.drawn)) for name, members in strata.items()} == shares
    assert len(set(result.drawn)) == n
    assert min(shares.values()) >= 1
    assert sorted(name for members in strata.values() for name in members) == sorted(model.name for model in site)


@given(sites(), st.integers(1, 6))
def test_price_bands_ascend_and_never_split_equal_prices(site, bands):
    result = draw(build_spec(draw=len(site), bands=min(bands, len(site))), site, at=NOON)
    sides = [[one.price for one in stratum.candidates] for stratum in result.strata]
    assert all(max(low) < min(high) for low, high in pairwise(sides))


@given(sites(), seeds, st.data())
def test_a_draw_record_can_be_read_back_and_is_refused_after_a_change(site, seed, data):
    n = data.draw(st.integers(1, len(site)))
    result = draw(build_spec(draw=n, seed=seed, by="none"), site, at=NOON)
    assert Draw.model_validate(result.content) == result
    if n < len(site):
        not_drawn = sorted({model.name for model in site} - set(result.drawn))
        with pytest.raises(ValidationError, match=f"this is not what the seed {seed} draws"):
            Draw.model_validate(result.content | {"drawn": [*result.drawn[:-1], not_drawn[0]]})


def test_a_draw_is_the_same_on_every_machine():
    site = [build_candidate(f"m{index}", str(index)) for index in range(9)]
    result = draw(build_spec(draw=4), site, at=NOON)
    assert list_strata(result) == {
        "band 1: $0 to $4": ["m0", "m1", "m2"],
        "band 2: $6 to $10": ["m3", "m4", "m5"],
        "band 3: $12 to $16": ["m6", "m7", "m8"],
    }
    assert result.drawn == ["m3", "m6", "m2", "m0"]


def test_the_price_is_the_sum_for_a_million_input_and_a_million_output_tokens():
    assert build_candidate("a", input_price="0.1", output_price="0.25").price == Decimal("0.35")
    assert build_candidate("a", input_price=None).price is None


def test_an_unknown_price_is_refused_only_if_the_draw_uses_prices():
    site = [build_candidate("known"), build_candidate("mystery", input_price=None)]
    with pytest.raises(DrawError, match="the price is unknown of mystery; enter prices, exclude them") as refused:
        draw(build_spec(draw=1), site, at=NOON)
    assert refused.value.key == "by"
    assert draw(build_spec(draw=1, **{"from": ["price:known"]}), site, at=NOON).drawn == ["known"]
    assert draw(build_spec(draw=2, by="none"), site, at=NOON).drawn == ["mystery", "known"]


def test_values_of_one_filter_are_alternatives_and_filters_combine():
    site = [
        build_candidate("qwen3", provider="hosted_vllm"),
        build_candidate("qwen3-vl", provider="hosted_vllm", endpoint="other"),
        build_candidate("llama4", provider="hosted_vllm", sees_images=False),
        build_candidate("gpt-5"),
    ]

    def from_(*wanted):
        result = draw(DrawSpec.model_validate({"draw": 1, "by": "none", "from": list(wanted)}), site, at=NOON)
        return sorted(one.name for one in result.candidates)

    assert from_("family:qwen", "family:llama") == ["llama4", "qwen3", "qwen3-vl"]
    assert from_("family:qwen", "endpoint:lab") == ["qwen3"]
    assert from_("provider:hosted_vllm", "sees:images") == ["qwen3", "qwen3-vl"]
    assert from_("gpt-5", "qwen3") == ["gpt-5", "qwen3"]


@pytest.mark.parametrize(
    ("fields", "key", "message"),
    [
        ({"draw": 4}, "draw", "cannot draw 4 of 3 models; draw fewer, or from more"),
        ({"draw": 1, "by": "provider"}, "draw", "1 cannot hold one of each of 2 strata: anthropic, openai; draw more"),
        ({"draw": 1, "from": ["a", "zz"]}, "from[1]", "no active model has the name zz"),
        ({"draw": 1, "from": ["colour:red"]}, "from[0]", "colour: is not a valid prefix; use name:, endpoint:,"),
        ({"draw": 1, "from": ["price:low"]}, "from[0]", "price: can only be price:known"),
        ({"draw": 1, "from": ["a", "provider:anthropic"]}, "from", "there is no active model to draw from"),
    ],
)
def test_an_impossible_draw_is_refused_with_its_key_and_a_remedy(fields, key, message):
    site = [build_candidate("a"), build_candidate("b"), build_candidate("c", provider="anthropic")]
    with pytest.raises(DrawError) as refused:
        draw(build_spec(**fields), site, at=NOON)
    assert refused.value.key == key
    assert str(refused.value).startswith(message)


def test_bands_are_refused_in_a_draw_without_prices():
    with pytest.raises(ValidationError, match="bands only apply to a draw by price"):
        build_spec(draw=2, by="family", bands=2)
