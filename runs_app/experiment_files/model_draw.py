"""Seeded, stratified and recorded draws from the site's models. Pure functions.

The method is that of dataset samples (`datasets_app.sampling`): the seed shuffles the sorted names. Each stratum gives
a share in proportion to its size, at least one model. The record holds all candidates and their prices on that day, so
that the draw can be repeated after the site's models have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from datasets_app.sampling import sample
from runs_app.experiment_files.spec_types import Name, Strict, Text
from runs_app.llm.model_families import find_family

By = Literal["price", "provider", "family", "none"]
STRATA: tuple[By, ...] = get_args(By)
DEFAULT_SEED = 42
DEFAULT_BANDS = 3
MAX_DRAWN_MODELS = 100  # Models in one draw.
KINDS = ("name", "endpoint", "provider", "family", "price", "sees")  # The kinds of a `from` entry.
FIXED_VALUES = {"price": "known", "sees": "images"}  # The only value of these kinds.

Price = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$")] | None


def _check_time_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time must have its zone, such as 2026-03-01T12:00:00+00:00")
    return text


Moment = Annotated[str, AfterValidator(_check_time_zone)]


class DrawError(ValueError):
    """An impossible draw. The message is for the user, and `key` names the setting to change."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


class Candidate(Strict):
    """A model at the time of the draw. Prices are exact texts, in US dollars per million tokens."""

    name: Name
    endpoint: Name
    provider: Text
    model: Text
    input_price: Price = None
    output_price: Price = None
    price_source: Text = ""
    price_date: Text = ""
    sees_images: bool = True

    @property
    def price(self) -> Decimal | None:
        """Return the price of a million input plus a million output tokens; None if either is unknown."""
        if self.input_price is None or self.output_price is None:
            return None
        return Decimal(self.input_price) + Decimal(self.output_price)

    @property
    def family(self) -> str:
        return find_family(self.provider, self.model)

    def matches(self, kind: str, value: str) -> bool:
        if kind == "price":
            return self.price is not None
        return self.sees_images if kind == "sees" else getattr(self, kind) == value


class DrawSpec(Strict):
    """The request for a draw: the number of models, the seed, the strata, and the models to draw from."""

    draw: int = Field(ge=1, le=MAX_DRAWN_MODELS)
    seed: int = Field(default=DEFAULT_SEED, ge=0, lt=2**63)
    by: By = "price"
    bands: int | None = Field(default=None, ge=1, le=MAX_DRAWN_MODELS)
    selectors: list[Text] = Field(default=[], max_length=MAX_DRAWN_MODELS, alias="from")

    @model_validator(mode="after")
    def _check_bands(self) -> DrawSpec:
        if self.bands is not None and self.by != "price":
            raise ValueError("bands only apply to a draw by price; remove them, or draw by price")
        return self

    @property
    def content(self) -> dict[str, Any]:
        """Return the content in the format of an experiment file."""
        return self.model_dump(by_alias=True, exclude_none=True)


class Stratum(Strict):
    name: Text
    candidates: list[Candidate] = Field(min_length=1)


class Draw(DrawSpec):
    """A finished draw, with `drawn` in the order of the seed. It is invalid if the seed draws other models."""

    at: Moment
    strata: list[Stratum] = Field(min_length=1)
    drawn: list[Name]

    @model_validator(mode="after")
    def _check_seed(self) -> Draw:
        names = [candidate.name for stratum in self.strata for candidate in stratum.candidates]
        if len(set(names)) < len(names):
            raise ValueError("a candidate occurs twice")
        if not len(self.strata) <= self.draw <= len(names) or self.drawn != _draw_names(self, self.strata):
            raise ValueError(f"this is not what the seed {self.seed} draws from these candidates")
        return self

    @property
    def candidates(self) -> list[Candidate]:
        return [candidate for stratum in self.strata for candidate in stratum.candidates]


def draw(spec: DrawSpec, site: Iterable[Candidate], *, at: str) -> Draw:
    """Draw from the site's models. `at` is the recorded time. Raise DrawError if the models do not allow the draw."""
    # The models that `from` selects, by name. A model must match one entry of each kind.
    by_name = sorted(site, key=lambda candidate: candidate.name)
    values_by_kind: dict[str, list[str]] = {}
    for index, entry in enumerate(spec.selectors):
        kind, value = _parse_entry(f"from[{index}]", entry)
        if not any(candidate.matches(kind, value) for candidate in by_name):
            raise DrawError(f"from[{index}]", f"no active model has the {kind} {value}")
        values_by_kind.setdefault(kind, []).append(value)
    candidates = [
        candidate
        for candidate in by_name
        if all(any(candidate.matches(kind, value) for value in values) for kind, values in values_by_kind.items())
    ]
    if not candidates:
        raise DrawError("from", "there is no active model to draw from")
    strata = _build_strata(spec, candidates)
    if spec.draw > len(candidates):
        raise DrawError("draw", f"cannot draw {spec.draw} of {len(candidates)} models; draw fewer, or from more")
    if spec.draw < len(strata):
        names = ", ".join(stratum.name for stratum in strata)
        raise DrawError("draw", f"{spec.draw} cannot hold one of each of {len(strata)} strata: {names}; draw more")
    result = {"at": at, "strata": [stratum.model_dump() for stratum in strata], "drawn": _draw_names(spec, strata)}
    return Draw.model_validate(spec.content | result)


def _draw_names(spec: DrawSpec, strata: Sequence[Stratum]) -> list[str]:
    pool = [(candidate.name, stratum.name) for stratum in strata for candidate in stratum.candidates]
    return sample(pool, "stratified", spec.draw, spec.seed)


# --- candidates ------------------------------------------------------------------------------------------------------


def _parse_entry(key: str, entry: str) -> tuple[str, str]:
    """Return an entry such as `family:qwen` as ("family", "qwen"). An entry without a kind is a model's name."""
    kind, colon, value = entry.partition(":")
    if not colon:
        return "name", entry
    if kind not in KINDS:
        valid = ", ".join(f"{name}:" for name in KINDS)
        raise DrawError(key, f"{kind}: is not a valid prefix; use {valid} or a model's name")
    if value != FIXED_VALUES.get(kind, value):
        raise DrawError(key, f"{kind}: can only be {kind}:{FIXED_VALUES[kind]}")
    return kind, value


# --- strata ----------------------------------------------------------------------------------------------------------


def _build_strata(spec: DrawSpec, candidates: Sequence[Candidate]) -> list[Stratum]:
    if spec.by == "price":
        return _build_price_bands(candidates, spec.bands or min(DEFAULT_BANDS, spec.draw))
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault("all" if spec.by == "none" else getattr(candidate, spec.by), []).append(candidate)
    return [Stratum(name=name, candidates=groups[name]) for name in sorted(groups)]


def _build_price_bands(candidates: Sequence[Candidate], bands: int) -> list[Stratum]:
    """Return price bands of about equal size, cheapest first. Raise DrawError if a price is unknown.

    Models of equal price stay in one band, so there may be fewer bands.
    """
    if unpriced := [candidate.name for candidate in candidates if candidate.price is None]:
        raise DrawError(
            "by",
            f"the price is unknown of {', '.join(unpriced)}; enter prices, exclude them with from: [price:known], "
            "or draw by provider, family or none",
        )
    groups: dict[int, list[Candidate]] = {}
    candidates_by_price = sorted(candidates, key=lambda candidate: (candidate.price, candidate.name))
    band_of: dict[Decimal | None, int] = {}
    for index, candidate in enumerate(candidates_by_price):
        band = band_of.setdefault(candidate.price, index * bands // len(candidates_by_price))
        groups.setdefault(band, []).append(candidate)
    return [
        Stratum(name=_format_band_name(number, group), candidates=group)
        for number, (_, group) in enumerate(sorted(groups.items()), start=1)
    ]


def _format_band_name(number: int, group: Sequence[Candidate]) -> str:
    """Return a name such as `band 1: $0.30 to $2.00`, from its cheapest to its most expensive model.

    The prices are for a million input plus a million output tokens.
    """
    low, high = (f"${(group[end].price or Decimal(0)).normalize():f}" for end in (0, -1))
    return f"band {number}: {low}" + ("" if low == high else f" to {high}")
