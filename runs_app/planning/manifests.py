"""Manifests: the full record of a launch, enough to repeat the experiment and to find differences.

`design` is a complete experiment file with all texts written out.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from decimal import Decimal
from importlib import metadata
from typing import Any

from django.contrib.auth.models import User

from evalsite.lib.history import Actor
from evalsite.lib.ops.versions import get_commit, get_version
from runs_app.experiment_options import BUDGET, list_options
from runs_app.grading_interface import grading
from runs_app.models import Experiment, LanguageModel, Manifest
from runs_app.planning.drift import find_drift_warnings
from runs_app.planning.spec_io import SETTINGS, build_spec
from runs_app.pricing.estimated_costs import CostEstimate

PACKAGES = ("django", "litellm", "psycopg", "numpy", "scipy", "pillow", "pydantic")
# The recorded fields of an estimate.
COUNTS = ("policy_text", "trials", "to_do", "likely", "foreseen", "batched", "verdicts")
COSTS = ("ceiling_usd", "expected_usd", "full_usd", "spent_usd", "batches_save_usd")


def write_manifest(
    experiment: Experiment,
    *,
    by: Actor,
    wave: str = "",
    pilot: int | None = None,
    approved: CostEstimate | None = None,
    only: Collection[str] | None = None,
    policy: str | None = None,
) -> Manifest:
    """Write the manifest of a wave's launch, or of a pilot with this many trials, at the approved estimate.

    `only` is the set of launched cell ids; None is all cells.
    """
    launch = {
        "by": str(by or ""),
        "wave": wave,
        "pilot": pilot,
        "policy": policy or experiment.budget_policy,
        "conditions": None if only is None else sorted(only),
        "estimate": {
            **{name: getattr(approved, name) for name in COUNTS},
            **{name: _to_text(getattr(approved, name)) for name in COSTS},
            "coverage": approved.coverage,
            "basis": dict(approved.basis),
            "counted": {price.model: price.counted for price in approved.prices},
        }
        if approved
        else None,
    }
    return Manifest.objects.create(
        experiment=experiment,
        content=build_manifest(experiment) | {"launch": launch},
        created_by=by if isinstance(by, User) else None,
    )


def build_manifest(experiment: Experiment) -> dict[str, Any]:
    dataset = experiment.dataset
    conditions = experiment.answer_conditions.select_related("model__endpoint", "prompt", "sampler").order_by("pk")
    return {
        "schema": 1,
        "experiment": experiment.slug,
        "dataset": {"name": str(dataset), "hash": dataset.content_hash, "items": dataset.active_count},
        "samples": experiment.samples,
        "dimensions": [{"name": str(row), "hash": row.content_hash} for row in experiment.dimensions.all()],
        "conditions": [
            {
                "id": condition.condition_id,
                "prompt": {"name": str(condition.prompt), "hash": condition.prompt and condition.prompt.content_hash},
                "sampler": {"name": str(condition.sampler), "hash": condition.sampler.content_hash},
                **describe_model_identity(condition.model, condition.content["model"]),
            }
            for condition in conditions
        ],
        "scorers": experiment.scorers,
        "judges": grading().describe_judges(experiment).in_use,
        "budget": {
            option.key.removeprefix("budget."): _to_text(value) if option.kind is Decimal else value
            for option in list_options(group=BUDGET)
            for value in [getattr(experiment, option.name)]
        },
        "settings": {name: getattr(experiment, name) for name in SETTINGS if name != "samples"},
        "warnings": find_drift_warnings(experiment),
        "design": build_spec(experiment) | {"dataset_hash": dataset.content_hash},
        "evalsite": {"version": get_version(), "commit": get_commit()},
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def describe_model_identity(model: LanguageModel, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return `model` and `prices`: US dollars per million tokens as texts (None: unknown), with source and date."""
    prices = model.prices
    return {
        "model": {"name": model.name, "endpoint": model.endpoint.name, **identity},
        "prices": {
            "input": _to_text(prices.input),
            "output": _to_text(prices.output),
            "source": prices.source,
            "as_of": prices.as_of.isoformat() if prices.as_of else None,
        },
    }


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)
