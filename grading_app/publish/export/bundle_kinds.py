"""The kinds of archives: which tables of a study each holds, and what an import does with their rows.

A snapshot is the kind "study". Bundles have the same format with fewer parts, or with more: their kind is in
`schema.json`.
"""

# ruff: noqa: S608 (names of tables and columns come from the models of this project)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from datasets_app.models import Asset, Dataset, Item, Norm, ParametricSpace
from grading_app.models import Grader, Panel, RatingQueue, Rubric
from grading_app.publish.export.snapshot_check import STUDY
from grading_app.publish.export.study_rows import BY_MODEL, GRADERS, ITEMS, OF_E, PANELS, TABLES, StudyTable, select
from runs_app.models import Dimension, Endpoint, Experiment, ItemText, LanguageModel, Prompt, Sampler, TextSet

DATASET, DESIGN, ANALYSIS = "dataset", "design", "analysis"
DATASET_TABLES = tuple(BY_MODEL[model] for model in (Asset, Dataset, Item, Norm, ParametricSpace))


def _select_axis(axis: str, column: str) -> str:
    """Return SQL for the ids that the design itself names; conditions of judges may name others."""
    return select(column, getattr(Experiment, axis).through, OF_E)


# The graders that the design names, and those that graded its answers, alone or in a panel.
NAMED_GRADERS = select("jsonb_array_elements_text(graders)", Experiment, "id = %(experiment)s")
DESIGN_GRADERS = f"({select('id', Grader, f'id IN {GRADERS} OR name IN ({NAMED_GRADERS})')})"
# The panels that graded its answers, and those with no other members than its graders.
DESIGN_PANELS = f"""(SELECT id FROM grading_app_panel p WHERE id IN {PANELS} OR (
    EXISTS (SELECT FROM grading_app_panel_graders g WHERE g.panel_id = p.id) AND NOT EXISTS (
        SELECT FROM grading_app_panel_graders g WHERE g.panel_id = p.id AND g.grader_id NOT IN {DESIGN_GRADERS})))"""
QUEUES = f"({select('id', RatingQueue, OF_E)})"
# A condition of the stage "rubric" wrote item rubrics: its model and sampler, and the template with the same turns.
RUBRIC_CONDITIONS = f"runs_app_condition c WHERE c.{OF_E} AND c.stage = 'rubric'"
MODELS = f"""({_select_axis("language_models", "languagemodel_id")}
    UNION {select("language_model_id", Grader, f"id IN {DESIGN_GRADERS}")}
    UNION SELECT c.model_id FROM {RUBRIC_CONDITIONS})"""
TEXT_SETS = f"""({select("text_set_id", Grader, f"id IN {DESIGN_GRADERS}")}
    UNION {select("text_set_id", RatingQueue, f"id IN {QUEUES}")})"""
# A design was never run: what it cost, and the draws that its models came from, stay at home.
DRAFT = {
    "sharing": "private", "status": "draft", "imported_from": "", "spent_usd": 0, "reserved_usd": 0, "draws": {},
    "created_at": None,
}  # fmt: skip
DESIGN_TABLES = (
    *DATASET_TABLES,
    replace(BY_MODEL[Endpoint], where=f"t.id IN ({select('endpoint_id', LanguageModel, f'id IN {MODELS}')})"),
    replace(BY_MODEL[LanguageModel], where=f"t.id IN {MODELS}"),
    replace(BY_MODEL[Prompt], where=f"t.id IN ({_select_axis('prompts', 'prompt_id')})"),
    replace(
        BY_MODEL[Sampler],
        where=f"""t.id IN ({_select_axis("samplers", "sampler_id")}
            UNION {select("sampler_id", Grader, f"id IN {DESIGN_GRADERS}")}
            UNION SELECT c.sampler_id FROM {RUBRIC_CONDITIONS})""",
    ),
    replace(
        BY_MODEL[Dimension],
        where=f"""t.id IN ({_select_axis("dimensions", "dimension_id")}
            UNION {select("dimension_id", RatingQueue.dimensions.through, f"ratingqueue_id IN {QUEUES}")})""",
    ),
    replace(BY_MODEL[Experiment], local=DRAFT),
    *(BY_MODEL[getattr(Experiment, axis).through] for axis in ("language_models", "prompts", "samplers", "dimensions")),
    # The texts, without the calls that wrote them.
    replace(
        BY_MODEL[TextSet],
        where=f"t.dataset_id = %(dataset)s AND t.id IN {TEXT_SETS}",
        local={**BY_MODEL[TextSet].local, "written_by_id": None},
    ),
    replace(
        BY_MODEL[ItemText], where=f"t.text_set_id IN {TEXT_SETS} AND t.item_id IN {ITEMS}", local={"trial_id": None}
    ),
    replace(
        BY_MODEL[Rubric],
        where=f"""t.id IN ({select("rubric_id", Grader, f"id IN {DESIGN_GRADERS}")}
            UNION {select("rubric_id", RatingQueue, f"id IN {QUEUES}")}
            UNION SELECT w.id FROM grading_app_rubric w WHERE w.kind = 'writer' AND w.messages IN (
                SELECT c.content #> '{{prompt,messages}}' FROM {RUBRIC_CONDITIONS}))""",
    ),
    replace(BY_MODEL[Grader], where=f"t.id IN {DESIGN_GRADERS}"),
    replace(BY_MODEL[Panel], where=f"t.id IN {DESIGN_PANELS}"),
    replace(BY_MODEL[Panel.graders.through], where=f"t.panel_id IN {DESIGN_PANELS}"),
    # Queues arrive as drafts. The conditions whose answers they ask about do not exist yet.
    replace(BY_MODEL[RatingQueue], where=f"t.id IN {QUEUES}"),
    replace(BY_MODEL[RatingQueue.dimensions.through], where=f"t.ratingqueue_id IN {QUEUES}"),
)
KINDS: Mapping[str, tuple[StudyTable, ...]] = {
    STUDY: TABLES,
    DATASET: DATASET_TABLES,
    DESIGN: DESIGN_TABLES,
    ANALYSIS: TABLES,
}
