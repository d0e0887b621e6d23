"""The kinds of archives: which tables of a study each holds, and what an import does with their rows.

A snapshot is the kind "study". Bundles have the same format with fewer parts, or with more: their kind is in
`schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from datasets_app.models import Asset, Dataset, Item, Norm, ParametricSpace
from grading_app.export.snapshot_check import STUDY
from grading_app.export.study_rows import BY_MODEL, OF_E, TABLES, StudyTable
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Prompt, Sampler

DATASET, DESIGN, ANALYSIS = "dataset", "design", "analysis"
DATASET_TABLES = tuple(BY_MODEL[model] for model in (Asset, Dataset, Item, Norm, ParametricSpace))


def _chosen(axis: str, column: str) -> str:
    """Return SQL for the ids that the design itself names; conditions of judges may name others."""
    return f"(SELECT {column} FROM runs_app_experiment_{axis} WHERE {OF_E})"  # noqa: S608


MODELS = _chosen("language_models", "languagemodel_id")
# A design was never run: what it cost, and the draws that its models came from, stay at home.
DRAFT = {
    "sharing": "private", "status": "draft", "imported_from": "", "spent_usd": 0, "reserved_usd": 0, "draws": {},
    "created_at": None,
}  # fmt: skip
DESIGN_TABLES = (
    *DATASET_TABLES,
    replace(
        BY_MODEL[Endpoint],
        where=f"t.id IN (SELECT endpoint_id FROM runs_app_languagemodel WHERE id IN {MODELS})",  # noqa: S608
    ),
    replace(BY_MODEL[LanguageModel], where=f"t.id IN {MODELS}"),
    replace(BY_MODEL[Prompt], where=f"t.id IN {_chosen('prompts', 'prompt_id')}"),
    replace(BY_MODEL[Sampler], where=f"t.id IN {_chosen('samplers', 'sampler_id')}"),
    replace(BY_MODEL[Dimension], where=f"t.id IN {_chosen('dimensions', 'dimension_id')}"),
    replace(BY_MODEL[Experiment], local=DRAFT),
    *(BY_MODEL[getattr(Experiment, axis).through] for axis in ("language_models", "prompts", "samplers", "dimensions")),
)
KINDS: Mapping[str, tuple[StudyTable, ...]] = {
    STUDY: TABLES,
    DATASET: DATASET_TABLES,
    DESIGN: DESIGN_TABLES,
    ANALYSIS: TABLES,
}
