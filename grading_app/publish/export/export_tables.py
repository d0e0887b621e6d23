"""The definition of the exported tables: their columns in order, and the source of each column.

The SQL here is fixed text. Values from a request or a command are passed only as parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grading_app.publish.export.columns import CELLS, DESIGN_CELL, DESIGN_JOINS, ITS_ITEM, Column, columns
from runs_app.models.trials import RAW_TEXT


@dataclass(frozen=True, slots=True)
class ExportTable:
    """The SQL of one exported table.

    sections: selects the ids of the sections, for example runs, by the parameter `experiment`.
    source: the tables that decide which rows there are. where: restricts them to the rows of one `section`.
    joins: the other tables of the columns.
    key: the key of a row, or of rows that are grouped.
    group: the columns by which the rows of a page are grouped; empty if they are not.
    order: the order of the rows of a page, if it is not that of the key.
    """

    name: str
    columns: tuple[Column, ...]
    sections: str
    source: str
    where: str
    key: str
    joins: str = DESIGN_JOINS
    group: str = ""
    order: str = ""
    has_trials: bool = True

    @property
    def keys(self) -> str:
        """Return SQL that selects the keys of one `section`."""
        return f"SELECT {'DISTINCT ' if self.group else ''}{self.key} AS id FROM {self.source} WHERE {self.where}"  # noqa: S608

    @property
    def rows(self) -> str:
        """Return SQL from FROM on, for the rows with a key above `low` and at most `high`."""
        page = f"{self.key} > %(low)s AND {self.key} <= %(high)s"
        return f"FROM {self.source} {self.joins} WHERE {self.where} AND {page}"

    @property
    def ordering(self) -> str:
        """Return the ORDER BY of a page."""
        return f" ORDER BY {self.order or self.key}"


USAGE = "input_tokens output_tokens reasoning_tokens cache_read_tokens cache_write_tokens"


def _list_removal_columns(row: str) -> tuple[Column, ...]:
    """Return the columns that say when a raw response was removed, and what its hash is."""
    return (
        Column("raw_response_removed_at", "time", f"{row}.raw_removed_at"),
        Column("raw_response_sha256", "text", f"{row}.raw_sha256"),
    )


EXPERIMENT = "SELECT id FROM runs_app_experiment WHERE id = %(experiment)s"
RUNS = "SELECT id FROM runs_app_run WHERE experiment_id = %(experiment)s"
GENERATING_RUNS = """SELECT fr.id FROM runs_app_run fr JOIN runs_app_condition fc ON fc.id = fr.condition_id
    WHERE fr.experiment_id = %(experiment)s AND fc.stage = 'generate'"""

TRIALS = ExportTable(
    name="trials",
    columns=(
        *DESIGN_CELL,
        *columns("text", "t", "status"),
        *columns("integer", "t", "rating"),
        *columns("text", "t", "answer reasoning"),
        Column("raw_response", "text", RAW_TEXT.format(t="t")),
        *columns("text", "t", "finish_reason"),
        *columns("flag", "t", "truncated"),
        *columns("text", "t", "response_id served_model served_provider"),
        *columns("integer", "t", USAGE),
        *columns("decimal", "t", "cost_usd"),
        *columns("flag", "t", "from_cache"),
        *columns("integer", "t", "latency_ms attempts"),
        *columns("text", "t", "error_class error"),
        *columns("time", "t", "claimed_at completed_at"),
        *columns("text", "t", "rating_step parse_error"),
        *_list_removal_columns("t"),
    ),
    sections=GENERATING_RUNS,
    source="runs_app_trial t",
    where="t.run_id = %(section)s",
    key="t.id",
)

ATTEMPTS = ExportTable(
    name="attempts",
    columns=(
        *DESIGN_CELL,
        Column("trial_id", "integer", "a.trial_id"),
        *columns("text", "cell", "stage"),
        *columns("integer", "a", "call"),
        *columns("text", "a", "outcome error_class error"),
        *columns("integer", "a", "http_status"),
        *columns("text", "a", "raw_response finish_reason response_id served_model served_provider request_hash"),
        *columns("integer", "a", USAGE),
        *columns("decimal", "a", "cost_usd"),
        *columns("integer", "a", "latency_ms"),
        *columns("text", "a", "trace_id"),
        *columns("time", "a", "started_at finished_at"),
        *_list_removal_columns("a"),
    ),
    sections=RUNS,
    source="runs_app_attempt a JOIN runs_app_trial t ON t.id = a.trial_id",
    where="a.run_id = %(section)s",
    key="a.id",
)

GRADE_CONDITIONS = "SELECT id FROM grading_app_gradecondition WHERE experiment_id = %(experiment)s"
# A rule has only a scorer. A judge or panel has its name; a person has queue and number. The rubric is set if there is
# one. An imported judge has the names of its source.
BY_WHOM = columns("text", "gc", "grade_condition_id scorer grader rubric rubric_hash")
# The grader of the verdict `g`. It is the same for a whole section, so it is joined as a single row.
GRADER_JOINS = """
    JOIN (SELECT gc.id, gc.kind, gc.grade_condition_id, gc.scorer, gc.parameters,
            coalesce(gr.name, pa.name, qu.name || ' rater ' || ra.number, im.facts ->> 'judge') AS grader,
            coalesce(ru.name, im.facts ->> 'rubric') AS rubric,
            coalesce(ru.content_hash, im.facts ->> 'rubric_hash') AS rubric_hash, ru.version AS rubric_version,
            im.facts IS NOT NULL AS is_imported_judge,
            ts.name || '@' || ts.version AS item_texts, jm.name AS judge_model, jn.name AS judge_endpoint,
            js.name AS judge_sampler
        FROM grading_app_gradecondition gc
        LEFT JOIN grading_app_grader gr ON gr.id = gc.grader_id
        LEFT JOIN grading_app_panel pa ON pa.id = gc.panel_id
        LEFT JOIN grading_app_rubric ru ON ru.id = gc.rubric_id
        LEFT JOIN grading_app_raterassignment ra ON ra.id = gc.assignment_id
        LEFT JOIN grading_app_ratingqueue qu ON qu.id = ra.queue_id
        LEFT JOIN runs_app_textset ts ON ts.id = gr.text_set_id
        LEFT JOIN runs_app_condition jc ON jc.id = gc.judge_condition_id
        LEFT JOIN runs_app_languagemodel jm ON jm.id = jc.model_id
        LEFT JOIN runs_app_endpoint jn ON jn.id = jm.endpoint_id
        LEFT JOIN runs_app_sampler js ON js.id = jc.sampler_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN gc.kind = 'judge' AND gc.grader_id IS NULL THEN gc.parameters END AS facts) im
        WHERE gc.id = %(section)s OFFSET 0) gc ON gc.id = g.condition_id
    LEFT JOIN runs_app_trial j ON j.id = g.judged_by_id
"""
JUDGED_HOW = (
    *columns("integer", "gc", "rubric_version"),
    *columns("text", "gc", "item_texts judge_model judge_endpoint judge_sampler"),
    Column("judge_served_model", "text", "j.served_model"),
)
# The last adjudication counts, so its author is shown.
ADJUDICATED_BY = """CASE WHEN gc.kind = 'adjudicated' THEN (
    SELECT u.username FROM grading_app_adjudication w JOIN auth_user u ON u.id = w.by_id
    WHERE w.condition_id = g.condition_id AND w.trial_id = g.trial_id ORDER BY w.id DESC LIMIT 1) END"""

# A score without a call cost nothing. The cost of an imported judge's score is unknown if its call is.
GRADE_COST = """CASE WHEN j.id IS NOT NULL THEN j.cost_usd WHEN gc.is_imported_judge THEN NULL ELSE 0
    END::numeric(14, 8)"""

GRADINGS = ExportTable(
    name="gradings",
    columns=(
        *DESIGN_CELL,
        *BY_WHOM,
        *columns("real", "g", "score"),
        *columns("text", "g", "score_raw"),
        *columns("flag", "g", "parse_ok"),
        *columns("text", "g", "parse_error"),
        Column("grade_reasoning", "text", "CASE WHEN gc.kind <> 'rule' THEN g.reasoning END"),
        Column("grade_cost_usd", "decimal", GRADE_COST),
        Column("votes", "integer", "(g.detail ->> 'votes')::integer"),
        *columns("integer", "g", "trial_id"),
        Column("kind", "text", "gc.kind"),
        Column("parameters", "json", "gc.parameters"),
        *JUDGED_HOW,
        Column("judge_trial_id", "integer", "g.judged_by_id"),
        Column("unasked", "text", "(g.detail ->> 'code')"),
        Column("label", "text", "(g.detail ->> 'label')"),
        *columns("flag", "t", "truncated refused"),
        *columns("json", "g", "detail"),
        Column("adjudicated_by", "text", ADJUDICATED_BY),
        Column("graded_at", "time", "g.created_at"),
    ),
    sections=GRADE_CONDITIONS,
    source="grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id",
    where="g.condition_id = %(section)s",
    key="g.trial_id",
    joins=GRADER_JOINS + DESIGN_JOINS,
)

PREFERENCES = ExportTable(
    name="preferences",
    columns=(
        *DESIGN_CELL,
        Column("rival_condition_id", "text", "c2.condition_id"),
        Column("rival_model", "text", "m2.name"),
        *(column for column in BY_WHOM if column.name != "scorer"),
        Column("winner", "text", "nullif(g.winner, '')"),
        Column("parse_ok", "flag", "g.parse_error = ''"),
        *columns("text", "g", "parse_error"),
        Column("grade_reasoning", "text", "g.reasoning"),
        Column(
            "grade_cost_usd", "decimal", "CASE WHEN g.judged_by_id IS NULL THEN 0 ELSE j.cost_usd END::numeric(14, 8)"
        ),
        Column("trial_id", "integer", "g.trial_a_id"),
        Column("rival_trial_id", "integer", "g.trial_b_id"),
        Column("kind", "text", "gc.kind"),
        *JUDGED_HOW,
        Column("judge_trial_id", "integer", "g.judged_by_id"),
        Column("graded_at", "time", "g.created_at"),
    ),
    sections=f"{GRADE_CONDITIONS} AND kind IN ('judge', 'person')",
    source="grading_app_preference g JOIN runs_app_trial t ON t.id = g.trial_a_id",
    where="g.condition_id = %(section)s",
    key="g.id",
    joins=f"""{GRADER_JOINS}{DESIGN_JOINS}
        JOIN runs_app_trial t2 ON t2.id = g.trial_b_id
        JOIN runs_app_run r2 ON r2.id = t2.run_id
        JOIN runs_app_condition c2 ON c2.id = r2.condition_id
        JOIN runs_app_languagemodel m2 ON m2.id = c2.model_id""",
)

NORMS = """(SELECT jsonb_object_agg(dimension, jsonb_build_object('mean', mean, 'sd', sd, 'n', n))
    FROM datasets_app_norm WHERE item_id = i.id)"""

RATINGS = ExportTable(
    name="ratings",
    columns=(
        *DESIGN_CELL,
        Column("trial_id", "integer", "h.trial_id"),
        Column("queue", "text", "q.name"),
        Column("rater", "integer", "a.number"),
        Column("rated_on", "text", "coalesce(qd.name, nullif(h.criterion, ''), qr.kind)"),
        Column("rated_on_version", "integer", "qd.version"),
        *columns("text", "h", "kind"),
        *columns("integer", "h", "position"),
        Column("rating", "real", "h.value"),
        *columns("real", "h", "seconds"),
        *columns("integer", "h", "revisions"),
        Column("excluded", "flag", "a.excluded_at IS NOT NULL"),
        *columns("time", "h", "rated_at"),
        Column("rubric", "text", "qr.name"),
        Column("rubric_hash", "text", "qr.content_hash"),
        Column("criterion", "text", "nullif(h.criterion, '')"),
        Column("rival_trial_id", "integer", "h.rival_id"),
    ),
    sections="SELECT id FROM grading_app_ratingqueue WHERE experiment_id = %(experiment)s",
    source="""grading_app_rating h JOIN grading_app_raterassignment a ON a.id = h.assignment_id
        JOIN runs_app_trial t ON t.id = h.trial_id""",
    where="a.queue_id = %(section)s AND h.value IS NOT NULL",
    key="h.id",
    joins=f"""JOIN grading_app_ratingqueue q ON q.id = a.queue_id
        LEFT JOIN runs_app_dimension qd ON qd.id = h.dimension_id
        LEFT JOIN grading_app_rubric qr ON qr.id = q.rubric_id {DESIGN_JOINS}""",
)

ITEMS = ExportTable(
    name="items",
    columns=(
        Column("experiment", "text", "e.slug"),
        Column("dataset", "text", "d.slug || '@' || d.version"),
        Column("dataset_hash", "text", "d.content_hash"),
        Column("item_key", "text", "i.key"),
        *columns("integer", "i", "position"),
        *columns("text", "i", "category input"),
        Column("image", "text", "i.image_id"),
        *columns("text", "i", "target"),
        *columns("json", "i", "choices"),
        *columns("text", "i", "grading_scheme"),
        *columns("json", "i", "metadata"),
        Column("norms", "json", NORMS),
        *columns("flag", "i", "excluded"),
        *columns("text", "i", "note"),
    ),
    sections=EXPERIMENT,
    source="datasets_app_item i JOIN runs_app_experiment e ON e.dataset_id = i.dataset_id",
    where="e.id = %(section)s",
    key="i.id",
    joins="JOIN datasets_app_dataset d ON d.id = i.dataset_id",
    has_trials=False,
)

_COUNTS = f"attempts answered reused {USAGE}"
_MONEY = "list_usd cache_saved_usd batch_saved_usd reuse_saved_usd"
_SUMS = ", ".join(f"sum(b.{name}) AS {name}" for name in f"{_COUNTS} {_MONEY} unpriced kept_usd".split())
LEDGER = ExportTable(
    name="ledger",
    columns=(
        Column("experiment", "text", "e.slug"),
        *columns("text", "l", "day model provider stage"),
        *columns("integer", "l", _COUNTS),
        *columns("decimal", "l", f"cost_usd {_MONEY}"),
        *columns("integer", "l", "unpriced"),
        *columns("decimal", "l", "kept_usd"),
    ),
    sections=EXPERIMENT,
    source="runs_app_experiment e",
    where="e.id = %(section)s",
    key="e.id",  # There are a few rows per day, on a single page.
    # An unknown cost is counted, not summed.
    joins=f"""CROSS JOIN LATERAL (
        SELECT to_char(b.at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, m.name AS model,
            nullif(n.provider, '') AS provider, coalesce(c.stage, 'preflight') AS stage,
            sum(b.paid_usd) AS cost_usd, {_SUMS}
        FROM runs_app_ledgerentry b
        LEFT JOIN runs_app_run r ON r.id = b.run_id
        LEFT JOIN runs_app_condition c ON c.id = r.condition_id
        JOIN runs_app_languagemodel m ON m.id = coalesce(c.model_id, b.model_id)
        JOIN runs_app_endpoint n ON n.id = m.endpoint_id
        WHERE coalesce(r.experiment_id, b.experiment_id) = e.id
        GROUP BY 1, 2, 3, 4) AS l""",  # noqa: S608
    order="l.day, l.model, l.stage",
    has_trials=False,
)

POINTS = ExportTable(
    name="points",
    columns=(
        *(column for column in DESIGN_CELL if column.name not in ITS_ITEM),
        *columns("json", "pt", "key"),
        *columns("text", "pt", "status"),
        *columns("integer", "pt", "n_items n_planned n_total n_correct n_truncated n_unread n_failed n_rated_items"),
        *columns("real", "pt", "mean spread guess_chances half_width"),
        *columns("text", "pt", "reason"),
        *columns("json", "pt", "rounds"),
        *columns("time", "pt", "decided_at"),
    ),
    sections=RUNS,
    source="runs_app_point pt",
    where="pt.run_id = %(section)s",
    key="pt.id",
    joins=f"JOIN {CELLS} ON cell.run_id = pt.run_id LEFT JOIN runs_app_dimension dim ON dim.id = pt.dimension_id",
    has_trials=False,
)

SUPERSEDED = ExportTable(
    name="superseded",
    columns=(
        *DESIGN_CELL,
        *BY_WHOM,
        Column("score", "real", "(g.content ->> 'score')::float8"),
        Column("winner", "text", "nullif(g.content ->> 'winner', '')"),
        Column("score_raw", "text", "(g.content ->> 'score_raw')"),
        Column("parse_error", "text", "(g.content ->> 'parse_error')"),
        Column("grade_reasoning", "text", "CASE WHEN gc.kind <> 'rule' THEN (g.content ->> 'reasoning') END"),
        *columns("integer", "g", "trial_id"),
        Column("rival_trial_id", "integer", "g.rival_id"),
        Column("kind", "text", "gc.kind"),
        *JUDGED_HOW,
        Column("judge_trial_id", "integer", "g.judged_by_id"),
        Column("detail", "json", "nullif(g.content -> 'detail', 'null')"),
        Column("graded_at", "time", "(g.content ->> 'created_at')::timestamptz"),
        *columns("time", "g", "superseded_at"),
    ),
    sections=GRADE_CONDITIONS,
    source="""(SELECT *, (content ->> 'judged_by_id')::bigint AS judged_by_id FROM grading_app_supersededverdict) g
        JOIN runs_app_trial t ON t.id = g.trial_id""",
    where="g.condition_id = %(section)s",
    key="g.id",
    joins=GRADER_JOINS + DESIGN_JOINS,
)

# Annotations of the experiment's trials, and of the items of its dataset: without a trial, its columns are empty.
ANNOTATIONS = ExportTable(
    name="annotations",
    columns=(
        Column("experiment", "text", "e.slug"),
        Column("dataset", "text", "d.slug || '@' || d.version"),
        Column("item_key", "text", "i.key"),
        Column("trial_id", "integer", "n.trial_id"),
        Column("run_id", "integer", "t.run_id"),
        Column("condition_id", "text", "c.condition_id"),
        Column("dimension", "text", "dim.name"),
        Column("sample_idx", "integer", "t.sample_idx"),
        *columns("text", "n", "kind text"),
        Column("author", "text", "u.username"),
        *columns("time", "n", "created_at"),
        Column("changed_by", "text", "u2.username"),
        *columns("time", "n", "changed_at"),
        *columns("json", "n", "former"),
    ),
    sections=EXPERIMENT,
    source="""runs_app_annotation n JOIN datasets_app_item i ON i.id = n.item_id
        JOIN runs_app_experiment e ON e.dataset_id = i.dataset_id""",
    where="e.id = %(section)s AND NOT n.removed AND (n.experiment_id IS NULL OR n.experiment_id = e.id)",
    key="n.id",
    joins="""JOIN datasets_app_dataset d ON d.id = i.dataset_id
        JOIN auth_user u ON u.id = n.author_id LEFT JOIN auth_user u2 ON u2.id = n.changed_by_id
        LEFT JOIN runs_app_trial t ON t.id = n.trial_id LEFT JOIN runs_app_run r ON r.id = t.run_id
        LEFT JOIN runs_app_condition c ON c.id = r.condition_id
        LEFT JOIN runs_app_dimension dim ON dim.id = t.dimension_id""",
    has_trials=False,
)

TABLES: Mapping[str, ExportTable] = {
    table.name: table
    for table in (TRIALS, ATTEMPTS, GRADINGS, ITEMS, LEDGER, POINTS, PREFERENCES, RATINGS, SUPERSEDED, ANNOTATIONS)
}
