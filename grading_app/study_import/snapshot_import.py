"""The import of a study from a snapshot of another site, in one transaction.

Every row gets a new key, names in use get a suffix, and people become placeholders. So nothing on this site is
overwritten. Models are inactive and no run is live: nothing is ever called. Prompts, samplers, dimensions and rubrics
are imported, not approved: they serve this study alone.

The archive is not trusted, because anybody can write one whose checksums match. Its parts are looked up by name and
never used as paths. A process with limits checks every value. This process then copies the lines, lets the models check
their definitions, and computes counters and hashes again.
"""

# ruff: noqa: S608 (names of tables and columns come from the models of this project, values are parameters)

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError as InvalidValue
from django.db import models
from django.utils import timezone
from PIL import Image
from pydantic import ConfigDict, TypeAdapter, ValidationError

from datasets_app.importing.image_storage import store_images
from datasets_app.importing.records import BufferedImage
from datasets_app.models import Asset, Dataset, Item, ParametricSpace
from datasets_app.models.datasets import slug_validator
from evalsite.lib.history import record_changes
from grading_app.models import (
    Grader,
    Panel,
    RatedAnswer,
    RaterAssignment,
    Rating,
    RatingQueue,
)
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, DESIGN, KINDS
from grading_app.publish.export.snapshot_check import (
    IMAGES,
    MAX_PART,
    ROWS,
    STUDY,
    SnapshotFileError,
    describe_schema,
    open_archive,
)
from grading_app.publish.export.snapshot_check import TABLES as TABLE_PARTS
from grading_app.publish.export.study_rows import ARRIVAL, TABLES, StudyTable
from grading_app.study_import.design_bundle import Names, complete_design, reuse_rows
from grading_app.study_import.row_writer import (
    KEYS,
    ROWS_OF,
    STREAMED,
    execute,
    insert_part,
    list_new_keys,
    load_part,
    map_keys,
    read_lines,
    select,
)
from grading_app.study_import.source_import import ImportOptions, ImportReport, SourceImport
from grading_app.study_import.study_completion import check_definitions, complete_study
from grading_app.study_import.upload_reader import SnapshotFile, read_snapshot
from runs_app.models import (
    DeletedRun,
    Experiment,
    ItemText,
    TextSet,
)
from runs_app.models.designs import Versioned

MAX_BYTES = 64 * 2**30  # Unpacked, of all parts.
MAX_PARTS = 200_000
MAX_IMAGE = 64 * 2**20
IMAGE_NAME = re.compile(rf"{IMAGES}([0-9a-f]{{64}})\.(jpeg|png)\Z")
# Pillow reads only the head of an image here, with the errors of its parsers.
UNREADABLE_IMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
NAMES: TypeAdapter[Names] = TypeAdapter(dict[str, dict[str, str]], config=ConfigDict(strict=True))
PLACEHOLDER = "imported"
ASPECT = "import"
SOURCES = {
    STUDY: "Evalsite snapshot",
    DATASET: "Bundle of a dataset",
    DESIGN: "Bundle of a design",
    ANALYSIS: "Bundle of an analysis",
}
LABELS = {"assets": "Images", "superseded verdicts": "Former verdicts"}
IS_DRAFT = "x.line ->> 'status' = 'draft'"  # SQL: whether the row x of the file is a draft.


def import_snapshot(path: Path, owner: User, *, dry_run: bool = False) -> ImportReport:
    """Import the study of a snapshot, or the content of a bundle. Raise FileError, and change nothing, if that fails.

    A dry run does the same and takes everything back.
    """
    check_size(path)
    return SnapshotImport(read_snapshot(path), ImportOptions(owner, dry_run=dry_run)).run()


def check_size(path: Path) -> None:
    """Raise SnapshotFileError for an archive that is damaged or too large to be loaded."""
    with open_archive(path) as archive:
        parts = archive.infolist()
    streamed = (TABLE_PARTS, *(f"{ROWS}{model._meta.db_table}.jsonl" for model in STREAMED))
    part_sizes = [part.file_size for part in parts if not part.filename.startswith(streamed)]
    is_large = sum(part.file_size for part in parts) > MAX_BYTES or max(part_sizes, default=0) > MAX_PART
    if is_large or len(parts) > MAX_PARTS:
        raise SnapshotFileError(f"{path.name} is too large: at most {MAX_PARTS:,} parts, {MAX_BYTES // 2**30} GB")


class SnapshotImport(SourceImport[SnapshotFile]):
    """The import of a snapshot or bundle whose rows were checked."""

    def __init__(self, source: SnapshotFile, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.name = source.path.name
        self._placeholder: User | None = None

    def write(self) -> ImportReport:
        verdict = self.source.verdict
        check_size(self.source.path)
        if problem := describe_schema(verdict.schema):
            raise SnapshotFileError(f"{self.name} has {problem}")
        if verdict.problems:
            raise SnapshotFileError(f"{self.name} cannot be imported: {'; '.join(verdict.problems[:5])}")
        if verdict.kind not in KINDS:
            raise SnapshotFileError(f"{self.name} is of the unknown kind {verdict.kind[:40]!r}; update this site")
        self.kind, self.tables = verdict.kind, KINDS[verdict.kind]
        with zipfile.ZipFile(self.source.path) as self.archive:
            return self._write_rows()

    def _write_rows(self) -> ImportReport:
        names = set(self.archive.namelist())
        self.names = self._read_names(names)
        if unknown_parts := [
            name for name in names if name.startswith(ROWS) and name not in {part.file_name for part in self.tables}
        ]:
            raise SnapshotFileError(f"{self.name} holds unknown rows: {', '.join(sorted(unknown_parts)[:3])}")
        for part in self.tables:
            load_part(self.archive, part)
            nameless = set(map(str, map_keys(part.model) if part.name else ())) - self.names.get(part.table, {}).keys()
            if nameless:
                raise SnapshotFileError(f"{self.name}: names.json has no name for row {min(nameless)} of {part.table}")
        notes = reuse_rows(self.names) if self.kind == DESIGN else []
        counts = {
            str(part.model._meta.verbose_name_plural): select(f"SELECT count(*) FROM {ROWS_OF}{part.table}")[0]
            for part in self.tables
            if not part.model._meta.auto_created
        }
        self._take_images()
        for part in self.tables:
            if part.name:
                self._name_rows(part)
            self._insert(part)
            self._advance_status(part)
        new = {part.model: list_new_keys(part) for part in self.tables if part.has_key and part.model not in STREAMED}
        check_definitions(new, self.name)
        if self.tables is TABLES:
            complete_study(self._get_only(Experiment))
        for row in Dataset.objects.filter(pk__in=map_keys(Dataset).values()):
            if row.approved_at and row.hash_items() != row.content_hash:
                raise SnapshotFileError(f"{self.name}: the items of {row} are not what its hash says")
        dataset: Dataset = self._get_only(Dataset)
        experiment: Experiment | None = None if self.kind == DATASET else self._get_only(Experiment)
        if self.kind == DESIGN and experiment is not None:
            notes += complete_design(experiment, self.names)
        source = "snapshot" if self.kind == STUDY else f"bundle of kind {self.kind}"
        reason = f"Imported from the {source} {self.name}"[:500]
        content = self.source.verdict.content
        record_changes([(experiment or dataset, "", content[:12])], by=self.owner, reason=reason, aspect=ASPECT)
        for model in ARRIVAL:
            rows = model._default_manager.filter(pk__in=new.get(model, [])).exclude(status="draft")
            # Everybody reads the history of a definition: it does not name the file, because a study may be private.
            record_changes([(row, "", ARRIVAL[model]) for row in rows], by=self.owner, reason="Imported with a study")
        return ImportReport(
            SOURCES[self.kind],
            experiment.slug if experiment else "",
            dataset=[] if experiment else [dataset.slug, dataset.version],
            counts={LABELS.get(name, name.capitalize()): number for name, number in counts.items() if number},
            notes=notes,
            content=content,
        )

    def _read_names(self, parts: set[str]) -> Names:
        """Return the names of rows by table and number in the file."""
        if "names.json" not in parts:
            raise SnapshotFileError(f"{self.name} has no names.json")
        try:
            return NAMES.validate_json(self.archive.read("names.json"))
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise SnapshotFileError(f"{self.name}: names.json cannot be read: {reason}") from None

    def _get_only(self, model: type[models.Model]) -> Any:
        """Return the only row of this model. Raise SnapshotFileError if the file has another number of them."""
        keys = list(map_keys(model).values())
        if len(keys) != 1:
            raise SnapshotFileError(f"{self.name} holds {len(keys)} rows of {model._meta.db_table} instead of one")
        return model._default_manager.get(pk=keys[0])

    def _take_images(self) -> None:
        """Check each image, and store the ones that this site does not have."""
        rows_by_name = {f"{IMAGES}{row['sha256']}.{row['format']}": row for _, row in read_lines(Asset)}
        for name, row in rows_by_name.items():
            info = self.archive.NameToInfo.get(name)
            if IMAGE_NAME.match(name) is None or info is None or info.file_size > MAX_IMAGE:
                raise SnapshotFileError(f"{self.name}: {name[:100]} is not an image of a snapshot")
            data = self.archive.read(name)
            try:
                with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
                    facts = (hashlib.sha256(data).hexdigest(), str(picture.format).lower(), *picture.size)
            except UNREADABLE_IMAGE as error:
                raise SnapshotFileError(f"{self.name}: {name} is not an image: {error}") from None
            if facts != (row["sha256"], row["format"], row["width"], row["height"]):
                raise SnapshotFileError(f"{self.name}: {name} is not the image that its row describes")
            with tempfile.NamedTemporaryFile(suffix=f".{row['format']}") as file:
                file.write(data)
                file.flush()
                asset = {name: row[name] for name in ("sha256", "format", "width", "height")} | {"size": len(data)}
                image = BufferedImage(path=Path(file.name), original_name="", **asset)
                store_images([image], write_files=not self.options.dry_run)

    # --- names --------------------------------------------------------------------------------------------------------

    def _name_rows(self, part: StudyTable) -> None:
        """Give each row its name, or the next free one. Versions of one name in the file share their new name."""
        manager: Any = part.model._default_manager
        used: set[str] = set()
        versions: dict[str, tuple[str, int]] = {}  # By the name in the file: the name here, and its newest version.
        for old in select(
            f"""SELECT old FROM {KEYS}{part.table} k
            WHERE EXISTS (SELECT FROM {ROWS_OF}{part.table} x WHERE x.id = k.old) ORDER BY old"""
        ):
            name = self.names[part.table][str(old)]
            try:
                slug_validator(name)
            except InvalidValue as error:
                raise SnapshotFileError(f"{self.name}: {name[:80]!r} is not a valid name") from error
            if name in versions:
                chosen, version = versions[name][0], versions[name][1] + 1
            else:
                chosen, version = self.choose_name(
                    part.model, name, lambda one: one in used or manager.filter(**{part.name: one}).exists()
                )
                used.add(chosen)
            is_versioned = issubclass(part.model, Versioned)
            if is_versioned:
                versions[name] = chosen, version
            execute(
                f"UPDATE {KEYS}{part.table} SET name = %s, version = %s WHERE old = %s",
                [chosen, version if is_versioned else None, old],
            )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _insert(self, part: StudyTable) -> None:
        if part.model is Asset:
            return
        # Each row must refer to rows that the file holds.
        for column in part.list_columns():
            target = next((candidate for candidate in self.tables if candidate.model is column.related_model), None)
            if target is None:
                continue
            target_sql = f"SELECT FROM {KEYS}{target.table} k WHERE k.old = (x.line ->> '{column.attname}')::bigint"
            if not target.has_key:
                target_sql = f"SELECT FROM {target.table} a WHERE a.sha256 = x.line ->> '{column.attname}'"
            if select(
                f"""SELECT place FROM {ROWS_OF}{part.table} x
                WHERE x.line ->> '{column.attname}' IS NOT NULL AND NOT EXISTS ({target_sql}) LIMIT 1"""
            ):
                raise SnapshotFileError(f"{self.name}: {part.file_name} refers to a missing row ({column.attname})")
        params: dict[str, Any] = {}
        local = {column.attname: self._build_local_sql(part, column, params) for column in part.list_local_columns()}
        if part.model in (Dataset, TextSet):
            local["status"] = "'draft'"  # Their parts are inserted afterwards.
        insert_part(part, local, params)

    def _build_local_sql(self, part: StudyTable, column: models.Field[Any, Any], params: dict[str, Any]) -> str:
        """Return SQL for a column that the file does not hold, and add its value to the parameters."""
        if column.attname == part.name:
            return "m.name"
        if column.attname == "version" and issubclass(part.model, Versioned):
            return "m.version"
        if (part.model, column.attname) == (DeletedRun, "number"):
            return "-m.new"  # The key that the run had belongs to another site.
        value: Any = part.local.get(column.attname, column.get_default())
        if getattr(column, "auto_now_add", False):
            value = timezone.now()
        if column.related_model is User:
            is_definition = part.model in (*ARRIVAL, Grader, Panel)
            value = None if column.null and not is_definition else self._find_owner(part, column)
            if part.model is RaterAssignment:
                params[column.attname] = value
                return f"(SELECT id FROM auth_user WHERE username = %({column.attname})s || '-' || m.new)"
        params[column.attname] = json.dumps(value) if isinstance(column, models.JSONField) else value
        return f"%({column.attname})s"

    def _find_owner(self, part: StudyTable, column: models.Field[Any, Any]) -> int | str:
        """Return the owner of the import, or the placeholder of people who are not on this site."""
        if column.attname in ("owner_id", "created_by_id"):
            return self.owner.pk
        if part.model is RaterAssignment:
            seats = map_keys(part.model).values()
            User.objects.bulk_create(
                [User(username=f"{PLACEHOLDER}-rater-{seat}", is_active=False, password="!") for seat in seats]  # noqa: S106
            )
            return f"{PLACEHOLDER}-rater"
        if self._placeholder is None:
            self._placeholder = User.objects.get_or_create(
                username=PLACEHOLDER, defaults={"is_active": False, "password": "!"}
            )[0]
        return self._placeholder.pk

    def _advance_status(self, part: StudyTable) -> None:
        """Take the next step of rows that only accept others in a certain state."""
        if part.model is ParametricSpace:
            table = Dataset._meta.db_table
            execute(
                f"""UPDATE {table} d SET status = CASE WHEN {IS_DRAFT} THEN 'draft' ELSE '{ARRIVAL[Dataset]}' END,
                    approved_at = CASE WHEN {IS_DRAFT} THEN NULL ELSE now() END,
                    (item_count, active_count) = (SELECT count(*), count(*) FILTER (WHERE NOT excluded)
                        FROM {Item._meta.db_table} WHERE dataset_id = d.id)
                FROM {KEYS}{table} m JOIN {ROWS_OF}{table} x ON x.id = m.old WHERE d.id = m.new"""
            )
        elif part.model is ItemText:
            table = TextSet._meta.db_table
            execute(
                f"""UPDATE {table} s SET status = '{ARRIVAL[TextSet]}'
                FROM {KEYS}{table} m JOIN {ROWS_OF}{table} x ON x.id = m.old
                WHERE s.id = m.new AND NOT {IS_DRAFT}"""
            )
        elif part.model in (RatedAnswer, Rating):
            status = "open" if part.model is RatedAnswer else "closed"
            table = RatingQueue._meta.db_table
            execute(f"UPDATE {table} SET status = %s WHERE id IN (SELECT new FROM {KEYS}{table})", [status])
