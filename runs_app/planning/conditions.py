"""Conditions: every model crossed with every prompt and every sampler. A cell is identified by its content.

The content is what the model sees. It excludes repetitions, epochs, speed, time-outs and the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from evalsite.lib.text.hashing import build_condition_id, hash_content, slugify_name


@dataclass(frozen=True, slots=True)
class Facet:
    """One choice along one axis: its name for people, its content for the identity, and the key of its row."""

    name: str
    content: Mapping[str, Any]
    key: int | None = None

    @property
    def content_hash(self) -> str:
        return hash_content(self.content)


@dataclass(frozen=True, slots=True)
class Cell:
    """One model with one prompt and one sampler."""

    model: Facet
    prompt: Facet
    sampler: Facet

    @property
    def facets(self) -> dict[str, Facet]:
        return {"model": self.model, "prompt": self.prompt, "sampler": self.sampler}

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of the condition, without names: {"model": ..., "prompt": ..., "sampler": ...}."""
        return {axis: dict(facet.content) for axis, facet in self.facets.items()}

    @property
    def slug(self) -> str:
        return "_".join(slugify_name(facet.name) for facet in self.facets.values())

    @property
    def condition_id(self) -> str:
        """Return an id such as `model_prompt_sampler--hash12`."""
        return build_condition_id(self.slug, self.content)


def cross_facets(models: Iterable[Facet], prompts: Iterable[Facet], samplers: Iterable[Facet]) -> list[Cell]:
    """Return every cell of the crossing. Models vary slowest, samplers fastest."""
    return [Cell(*cell) for cell in product(models, prompts, samplers)]


def get_condition_hash(condition: str) -> str:
    """Return the hash in a condition's id, after `--`."""
    return condition.rpartition("--")[2]
