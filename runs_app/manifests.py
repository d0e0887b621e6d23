"""What was launched, in full: enough to make the same experiment again and to see what differs."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from django.contrib.auth.models import User

from datasets_app.models.history import Actor
from runs_app.drifting import drift_warnings
from runs_app.models import Condition, Experiment, Manifest

PACKAGES = ("django", "litellm", "psycopg", "numpy", "scipy", "pillow", "pydantic")


def write_manifest(experiment: Experiment, *, by: Actor, wave: str = "", pilot: int | None = None) -> Manifest:
    """Of the launch of a wave, or of so many trials of it as a pilot."""
    user = by if isinstance(by, User) else None
    launch = {"launch": {"wave": wave, "pilot": pilot}, "warnings": drift_warnings(experiment)}
    content = manifest_of(experiment) | launch
    return Manifest.objects.create(experiment=experiment, content=content, created_by=user)


def manifest_of(experiment: Experiment) -> dict[str, Any]:
    dataset = experiment.dataset
    conditions = experiment.conditions.select_related("model__endpoint", "prompt", "sampler").order_by("pk")
    return {
        "schema": 1,
        "experiment": experiment.slug,
        "dataset": {"name": str(dataset), "hash": dataset.content_hash, "items": dataset.active_count},
        "samples": experiment.samples,
        "dimensions": [{"name": str(one), "hash": one.content_hash} for one in experiment.dimensions.all()],
        "conditions": [_condition(condition) for condition in conditions],
        "scorers": experiment.scorers,
        "budget": {"max_usd": _text(experiment.max_usd), "confirm_above_usd": _text(experiment.confirm_above_usd)},
        "settings": {
            name: getattr(experiment, name)
            for name in ("cache", "cache_buster", "sequential", "max_concurrency", "request_timeout_s", "max_attempts")
        },
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def _condition(condition: Condition) -> dict[str, Any]:
    prices = condition.model.prices
    return {
        "id": condition.condition_id,
        "prompt": {"name": str(condition.prompt), "hash": condition.prompt.content_hash},
        "sampler": {"name": str(condition.sampler), "hash": condition.sampler.content_hash},
        "model": {
            "name": condition.model.name,
            "endpoint": condition.model.endpoint.name,
            **condition.content["model"],
        },
        "prices": {
            "input": _text(prices.input),
            "output": _text(prices.output),
            "source": prices.source,
            "as_of": prices.as_of.isoformat() if prices.as_of else None,
        },
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
