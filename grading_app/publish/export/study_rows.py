"""The rows of a study in a snapshot, so that another site can take it over.

Keys are numbered from 1 in the order of the rows, names are in a file of their own, and users are left out. So a site
that imported a study writes the same rows again: their digest identifies the content of the study.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models

from datasets_app.models import Asset, Dataset, Item, Norm, ParametricSpace
from evalsite.lib.constraints import find_range
from evalsite.lib.sql import PAGE_ROWS, fetch_rows, open_raw_cursor
from grading_app.models import (
    Adjudication,
    GradeCondition,
    Grader,
    Grading,
    Panel,
    Preference,
    RatedAnswer,
    RaterAssignment,
    Rating,
    RatingQueue,
    Rubric,
    SupersededVerdict,
)
from grading_app.publish.export.row_checks import ColumnRule
from grading_app.publish.export.snapshot_check import ROWS
from runs_app.models import (
    Annotation,
    Attempt,
    Condition,
    DeletedRun,
    Dimension,
    Endpoint,
    Experiment,
    ExternalCall,
    ItemText,
    LanguageModel,
    Manifest,
    Point,
    Preflight,
    Prompt,
    Run,
    Sampler,
    TextSet,
    Trial,
    Wave,
    Worker,
)

# ruff: noqa: S608 (names of tables and columns come from the models of this project, values are parameters)


KEYS = "snapshot_keys_"  # The prefix of temporary tables: (id, n) of each exported table.

OF_E = "experiment_id = %(experiment)s"


def select(column: str, model: Any, where: str) -> str:
    """Return SQL for a column of the rows of a model."""
    return f"SELECT {column} FROM {model._meta.db_table} WHERE {where}"


RUNS = f"({select('id', Run, OF_E)})"
RULES = f"({select('id', GradeCondition, OF_E)})"
# Nothing was rated in a queue that is a draft. It may still change, and so may its rubric.
QUEUES = f"({select('id', RatingQueue, OF_E)} AND status <> 'draft')"
PREFLIGHTS = f"({select('id', Preflight, OF_E)} AND finished_at IS NOT NULL)"
SEATS = f"({select('id', RaterAssignment, f'queue_id IN {QUEUES}')})"
PANELS = f"({select('panel_id', GradeCondition, OF_E)})"
GRADERS = f"""({select("grader_id", GradeCondition, OF_E)}
    UNION {select("grader_id", Panel.graders.through, f"panel_id IN {PANELS}")})"""
ITEMS = f"({select('id', Item, 'dataset_id = %(dataset)s')})"
TEXT_SETS = f"""({select("text_set_id", Grader, f"id IN {GRADERS}")}
    UNION {select("text_set_id", RatingQueue, f"id IN {QUEUES}")})"""


def _select_axis(axis: str, column: str, of_condition: str) -> str:
    """Return SQL for the ids that the experiment or its conditions refer to, by their columns there."""
    return f"""{select(column, getattr(Experiment, axis).through, OF_E)}
        UNION {select(of_condition, Condition, OF_E)}"""


MODELS = f"""({_select_axis("language_models", "languagemodel_id", "model_id")}
    UNION {select("model_id", Preflight, f"id IN {PREFLIGHTS}")}
    UNION {select("language_model_id", Grader, f"id IN {GRADERS}")})"""


@dataclass(frozen=True)
class StudyTable:
    """A table of a study.

    where: selects its rows `t`. name: the column with the name of a row on its site. local: columns that stay at
    home, with the value that an import gives them. only: the columns to hold; empty for all others.
    """

    model: type[models.Model]
    where: str
    name: str = ""
    local: Mapping[str, Any] = field(default_factory=dict)
    only: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    @property
    def file_name(self) -> str:
        return f"{ROWS}{self.table}.jsonl"

    @property
    def has_key(self) -> bool:
        """Return whether rows have a number of their own as key. Images have a hash, calls of programs a trial."""
        return self.model is not Asset and not self.model._meta.pk.is_relation

    def list_columns(self) -> list[models.Field[Any, Any]]:
        """Return the columns that a snapshot holds."""
        return [column for column in self.model._meta.concrete_fields if self._is_held(column)]

    def list_local_columns(self) -> list[models.Field[Any, Any]]:
        """Return the columns that an import fills."""
        return [column for column in self.model._meta.concrete_fields if not self._is_held(column)]

    def _is_held(self, column: models.Field[Any, Any]) -> bool:
        if column.primary_key:
            return True
        if column.attname == self.name or column.attname in self.local or column.related_model in (User, Worker):
            return False
        return not self.only or column.attname in self.only


VERSIONED = {"version": None, "approved_at": None}


def _get_through_model(row: Any) -> type[models.Model]:
    through: type[models.Model] = row.through
    return through


TABLES: tuple[StudyTable, ...] = (
    StudyTable(
        Asset,
        f"t.sha256 IN ({select('image_id', Item, 'dataset_id = %(dataset)s')})",
        only=frozenset({"format", "width", "height"}),
    ),
    StudyTable(Dataset, "t.id = %(dataset)s", "slug", {"approved_at": None, "parent_id": None}),
    StudyTable(Item, "t.dataset_id = %(dataset)s"),
    StudyTable(Norm, f"t.item_id IN {ITEMS}"),
    StudyTable(ParametricSpace, "t.dataset_id = %(dataset)s"),
    StudyTable(
        Endpoint,
        f"t.id IN ({select('endpoint_id', LanguageModel, f'id IN {MODELS}')})",
        "name",
        {"is_active": False, "base_url": "https://imported.invalid/v1"},
        frozenset({"provider", "is_free"}),
    ),
    StudyTable(
        LanguageModel,
        f"t.id IN {MODELS}",
        "name",
        {"is_active": False, "stalls": 0, "route_changed_at": None},
    ),
    StudyTable(Prompt, f"t.id IN ({_select_axis('prompts', 'prompt_id', 'prompt_id')})", "name", VERSIONED),
    StudyTable(
        Sampler,
        f"""t.id IN ({_select_axis("samplers", "sampler_id", "sampler_id")}
            UNION {select("sampler_id", Grader, f"id IN {GRADERS}")})""",
        "name",
        VERSIONED,
    ),
    StudyTable(
        Dimension,
        f"""t.id IN ({select("dimension_id", Experiment.dimensions.through, OF_E)}
            UNION {select("dimension_id", RatingQueue.dimensions.through, f"ratingqueue_id IN {QUEUES}")})""",
        "name",
        VERSIONED,
    ),
    StudyTable(
        Experiment,
        "t.id = %(experiment)s",
        "slug",
        {"sharing": "private", "status": "active", "imported_from": "snapshot", "reserved_usd": 0},
    ),
    *(
        StudyTable(_get_through_model(getattr(Experiment, axis)), f"t.{OF_E}")
        for axis in ("language_models", "prompts", "samplers", "dimensions")
    ),
    # Their costs are part of what the experiment spent.
    StudyTable(
        Preflight,
        f"t.id IN {PREFLIGHTS}",
        "",
        {"endpoint_id": None, "actor": "imported", "reserved_usd": 0, "lease_until": None},
    ),
    StudyTable(DeletedRun, f"t.{OF_E}", "", {"number": None}),
    StudyTable(Condition, f"t.{OF_E}"),
    StudyTable(Manifest, f"t.{OF_E}"),
    StudyTable(Wave, f"t.{OF_E}"),
    # An imported run keeps the status in which it ended. No run of a snapshot is live, so nothing claims its trials.
    # What a call may cost depends on the prices and limits of a site: an import computes the reservations.
    StudyTable(
        Run,
        f"t.{OF_E}",
        "",
        {"paused_by_budget": False, "is_batched": False, "reserve_usd": 0, "reserve_tokens": 0, "request_tokens": 0},
    ),
    StudyTable(
        Trial, f"t.run_id IN {RUNS}", "", {"token": None, "lease_until": None, "not_before": None, "reserved_usd": 0}
    ),
    StudyTable(
        ExternalCall,
        f"t.trial_id IN (SELECT id FROM runs_app_trial WHERE run_id IN {RUNS})",
        "",
        {"token": "imported"},
    ),
    StudyTable(Attempt, f"t.run_id IN {RUNS}"),
    StudyTable(Point, f"t.run_id IN {RUNS}"),
    StudyTable(
        TextSet,
        f"t.dataset_id = %(dataset)s AND t.id IN {TEXT_SETS}",
        "name",
        VERSIONED,
    ),
    StudyTable(
        ItemText,
        f"t.text_set_id IN {TEXT_SETS} AND t.item_id IN {ITEMS}",
    ),
    StudyTable(
        Rubric,
        f"""t.id IN ({select("rubric_id", GradeCondition, OF_E)}
            UNION {select("rubric_id", Grader, f"id IN {GRADERS}")}
            UNION {select("rubric_id", RatingQueue, f"id IN {QUEUES}")})""",
        "name",
        VERSIONED,
    ),
    StudyTable(Grader, f"t.id IN {GRADERS}", "name"),
    StudyTable(Panel, f"t.id IN {PANELS}", "name"),
    StudyTable(_get_through_model(Panel.graders), f"t.panel_id IN {PANELS}"),
    # Its raters are placeholders, so an imported queue is closed.
    StudyTable(RatingQueue, f"t.id IN {QUEUES}", "name", {"status": "draft"}),
    StudyTable(_get_through_model(RatingQueue.conditions), f"t.ratingqueue_id IN {QUEUES}"),
    StudyTable(_get_through_model(RatingQueue.dimensions), f"t.ratingqueue_id IN {QUEUES}"),
    StudyTable(RatedAnswer, f"t.queue_id IN {QUEUES}"),
    StudyTable(RaterAssignment, f"t.queue_id IN {QUEUES}"),
    StudyTable(Rating, f"t.assignment_id IN {SEATS}"),
    StudyTable(GradeCondition, f"t.{OF_E}", "", {"changes": 0}),
    StudyTable(Grading, f"t.condition_id IN {RULES}"),
    StudyTable(Preference, f"t.condition_id IN {RULES}"),
    StudyTable(SupersededVerdict, f"t.condition_id IN {RULES}"),
    StudyTable(Adjudication, f"t.condition_id IN {RULES}"),
    StudyTable(Annotation, f"t.{OF_E} AND NOT t.removed", "", {"former": [], "changed_at": None}),
)
BY_MODEL = {part.model: part for part in TABLES}
# What a definition is on arrival, whatever it is on its own site: a draft stays one, and no approval travels.
ARRIVAL: Mapping[type[models.Model], str] = {
    Dataset: "approved", Prompt: "imported", Sampler: "imported", Dimension: "imported", TextSet: "imported",
    Rubric: "imported",
}  # fmt: skip
# Keys inside the JSON of a former verdict.
INNER_KEYS = {
    "trial_id": Trial,
    "judged_by_id": Trial,
    "trial_a_id": Trial,
    "trial_b_id": Trial,
    "condition_id": GradeCondition,
}


def translate(column: models.Field[Any, Any], row: str, lookup: str, source: str, target: str) -> str:
    """Return SQL for a column of `row`, with the keys in it translated.

    `lookup` is the prefix of tables that map the key `source` to `target`.
    """
    value = f"{row}.{connection.ops.quote_name(column.attname)}"
    if column.attname == "status" and column.model in ARRIVAL:
        return f"CASE WHEN {value} = 'draft' THEN 'draft' ELSE '{ARRIVAL[column.model]}' END"

    def find_key(model: type[models.Model], key: str) -> str:
        return f"(SELECT k.{target} FROM {lookup}{model._meta.db_table} k WHERE k.{source} = {key})"

    related_model: Any = column.related_model
    if related_model in BY_MODEL and BY_MODEL[related_model].has_key:
        return find_key(related_model, value)
    if (column.model, column.attname) == (Point, "items"):
        items = f"{lookup}{Item._meta.db_table}"
        return f"""(SELECT coalesce(array_agg(k.{target} ORDER BY u.place), '{{}}') FROM unnest({value})
            WITH ORDINALITY AS u(key, place) JOIN {items} k ON k.{source} = u.key)"""
    if (column.model, column.attname) == (GradeCondition, "parameters"):
        rules = f"{lookup}{GradeCondition._meta.db_table}"
        return f"""(CASE WHEN {row}.kind = 'panel' THEN {value} || jsonb_build_object('members', (
            SELECT coalesce(jsonb_agg(k.{target} ORDER BY u.place), '[]')
            FROM jsonb_array_elements_text({value} -> 'members') WITH ORDINALITY AS u(key, place)
            JOIN {rules} k ON k.{source} = u.key::bigint)) ELSE {value} END)"""
    if (column.model, column.attname) == (SupersededVerdict, "content"):
        pairs = ", ".join(
            f"'{name}', {find_key(model, f'({value} ->> {name!r})::bigint')}" for name, model in INNER_KEYS.items()
        )
        return f"({value} - 'id' || jsonb_strip_nulls(jsonb_build_object({pairs})))"
    return value


def iterate_lines(rows: str, params: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the rows of a query as JSON lines, a page at a time."""
    statement = f"COPY (SELECT row_to_json(line)::text FROM ({rows}) AS line) TO STDOUT"
    with open_raw_cursor() as cursor, cursor.copy(statement, params) as copy:
        found = copy.rows()
        while lines := [f"{line}\n" for (line,) in islice(found, PAGE_ROWS)]:
            yield "".join(lines).encode()


class StudyRowReader:
    """A reader of the rows of an experiment, or of a dataset alone, in these tables.

    `open` numbers them in temporary tables, and `close` removes these.
    """

    def __init__(self, source: Experiment | Dataset, tables: Sequence[StudyTable] = TABLES) -> None:
        experiment = source.pk if isinstance(source, Experiment) else None
        dataset = source.dataset_id if isinstance(source, Experiment) else source.pk
        self.params, self._tables = {"experiment": experiment, "dataset": dataset}, tables

    def __enter__(self) -> StudyRowReader:
        self._drop()
        with connection.cursor() as cursor:
            for part in self._tables:
                key = part.model._meta.pk.attname
                name = f"{KEYS}{part.table}"
                cursor.execute(
                    f"""CREATE TEMPORARY TABLE {name} AS
                            SELECT t.{key} AS id, row_number() OVER (ORDER BY t.{key}) AS n
                            FROM {part.table} t WHERE {part.where};
                        CREATE UNIQUE INDEX ON {name} (id);
                        CREATE UNIQUE INDEX ON {name} (n);
                        ANALYZE {name}""",
                    self.params,
                )
        return self

    def __exit__(self, *failure: object) -> None:
        if not connection.needs_rollback:
            self._drop()

    def iterate_chunks(self, part: StudyTable) -> Iterator[bytes]:
        """Yield the rows of a table as JSON lines, a page at a time."""
        cells = {
            column.attname: "k.n" if column.primary_key and part.has_key else translate(column, "t", KEYS, "id", "n")
            for column in part.list_columns()
        }
        return self._iterate_pages(part, cells)

    def iterate_site_chunks(self, part: StudyTable, *, is_whole: bool) -> Iterator[bytes]:
        """Yield what `iterate_chunks` leaves out: the keys of the rows here, and with `is_whole` the other columns."""
        columns = part.list_local_columns() if is_whole else []
        return self._iterate_pages(
            part,
            {"n": "k.n", "id": "k.id"}
            | {column.attname: f"t.{connection.ops.quote_name(column.attname)}" for column in columns},
        )

    def _iterate_pages(self, part: StudyTable, cells: Mapping[str, str]) -> Iterator[bytes]:
        key = part.model._meta.pk.attname
        selected = ", ".join(f"{sql} AS {connection.ops.quote_name(name)}" for name, sql in cells.items())
        rows = f"""SELECT {selected} FROM {KEYS}{part.table} k JOIN {part.table} t ON t.{key} = k.id
            WHERE k.n > %(low)s AND k.n <= %(high)s ORDER BY k.n"""
        ((count,),) = fetch_rows(f"SELECT count(*) FROM {KEYS}{part.table}")
        for low in range(0, count, PAGE_ROWS):
            yield from iterate_lines(rows, {"low": low, "high": low + PAGE_ROWS})

    def build_names(self) -> bytes:
        """Return the names of rows by table and number, as JSON."""
        names = {}
        for part in self._tables:
            if part.name:
                rows = f"SELECT k.n, t.{part.name} FROM {KEYS}{part.table} k JOIN {part.table} t USING (id) ORDER BY 1"
                names[part.table] = {str(number): name for number, name in fetch_rows(rows)}
        return (json.dumps(names, indent=2, ensure_ascii=False) + "\n").encode()

    def list_images(self) -> Iterator[Asset]:
        where = BY_MODEL[Asset].where.replace("t.sha256", "sha256")
        yield from Asset.objects.raw(f"{select('*', Asset, where)} ORDER BY sha256", self.params)

    def _drop(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {', '.join(KEYS + part.table for part in TABLES)}")


# In the order of their base classes.
KINDS: tuple[tuple[type[models.Field[Any, Any]], str], ...] = (
    (models.JSONField, "json"),
    (ArrayField, "keys"),
    (models.BooleanField, "boolean"),
    (models.IntegerField, "integer"),
    (models.FloatField, "number"),
    (models.DecimalField, "number"),
    (models.DateTimeField, "time"),
    (models.DateField, "date"),
    (models.UUIDField, "uuid"),
    (models.CharField, "text"),
    (models.TextField, "text"),
)
SMALL, INTEGER, BIG = 2**15 - 1, 2**31 - 1, 2**63 - 1


def build_rules() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rules by table and column, as JSON that a process without models can read."""
    return {
        part.table: {column.attname: asdict(build_rule(part, column)) for column in part.list_columns()}
        for part in TABLES
    }


def build_rule(part: StudyTable, column: models.Field[Any, Any]) -> ColumnRule:
    if column.related_model is Asset or (part.model is Asset and column.primary_key):
        return ColumnRule("hash", column.null)
    if column.primary_key or column.is_relation:
        return ColumnRule("key", column.null)
    kind = next(kind for cls, kind in KINDS if isinstance(column, cls))
    low, high = find_range(part.model, column) if kind in ("integer", "number") else (None, None)
    if kind == "integer":
        limit = SMALL if isinstance(column, models.SmallIntegerField) else INTEGER
        limit = BIG if isinstance(column, models.BigIntegerField) else limit
        low, high = (-limit if low is None else low), (limit if high is None else min(high, limit))
    choices = tuple(str(value) for value, _ in column.flatchoices)
    if column.attname == "status" and part.model in ARRIVAL:
        choices = ("draft", ARRIVAL[part.model])
    return ColumnRule(
        kind,
        column.null,
        None if low is None else float(low) if kind == "number" else low,
        None if high is None else float(high) if kind == "number" else high,
        column.max_length or 0,
        (*choices, "") if choices and column.blank else choices,
    )
