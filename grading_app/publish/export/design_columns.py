"""The columns of a trial's place in the design, and the SQL that joins them to the rows of an exported table."""

from __future__ import annotations

from grading_app.publish.export.columns import Column, columns, json_members

SHARED_BY_A_RUN = (
    *columns("text", "cell", "experiment condition_id"),
    *columns("integer", "cell", "run_id wave"),
    *columns("text", "cell", "wave_label model provider prompt prompt_hash sampler dataset dataset_hash"),
)
DESIGN_CELL = (
    *SHARED_BY_A_RUN,
    Column("item_key", "text", "i.key"),
    Column("category", "text", "i.category"),
    Column("dimension", "text", "dim.name"),
    Column("sample_idx", "integer", "t.sample_idx"),
    Column("epoch", "integer", "cell.epoch_offset + t.sample_idx + 1"),
)
ITS_ITEM = ("item_key", "category", "sample_idx", "epoch")  # Columns of a trial's item. A point has many items.
# The values that all rows of a run share, computed once per page and not once per row. OFFSET 0 keeps the subquery
# separate. `members`, their JSON, is not computed unless it is selected.
CELLS = f"""(SELECT cell.*, {json_members(SHARED_BY_A_RUN)} AS members FROM (
    SELECT r.id AS run_id, e.slug AS experiment, c.condition_id, c.stage, w.number AS wave, w.label AS wave_label,
        w.epoch_offset, m.name AS model, nullif(n.provider, '') AS provider, p.name AS prompt,
        p.content_hash AS prompt_hash, s.name AS sampler, d.slug || '@' || d.version AS dataset,
        d.content_hash AS dataset_hash
    FROM runs_app_run r
    JOIN runs_app_experiment e ON e.id = r.experiment_id
    JOIN datasets_app_dataset d ON d.id = e.dataset_id
    JOIN runs_app_wave w ON w.id = r.wave_id
    JOIN runs_app_condition c ON c.id = r.condition_id
    JOIN runs_app_languagemodel m ON m.id = c.model_id
    JOIN runs_app_endpoint n ON n.id = m.endpoint_id
    LEFT JOIN runs_app_prompt p ON p.id = c.prompt_id
    JOIN runs_app_sampler s ON s.id = c.sampler_id
    WHERE r.experiment_id = %(experiment)s) cell OFFSET 0) cell"""  # noqa: S608
DESIGN_JOINS = f"""
    JOIN {CELLS} ON cell.run_id = t.run_id
    LEFT JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN runs_app_dimension dim ON dim.id = t.dimension_id
"""
