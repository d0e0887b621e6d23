"""The reader of items: it turns a file, a mapping and images into items and row-numbered remarks."""

from __future__ import annotations

import hashlib
import io
import json
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from datasets_app.importing.archives import IMAGE_SUFFIXES, FolderMembers, ImageFinder, NotFound, ZipMembers
from datasets_app.importing.column_map import SHEET, BoundMapping, guess_mapping
from datasets_app.importing.image_reader import BadImage, read_image
from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.norm_reader import find_norm_cells, read_norm
from datasets_app.importing.records import (
    BadField,
    BufferedImage,
    FileError,
    ItemReading,
    ItemRecord,
    NoValue,
    ReadingReport,
    ScratchFolder,
    TableRow,
    make_preview,
    to_text,
)
from datasets_app.importing.table_readers import (
    TABLE_SUFFIXES,
    Openable,
    detect_kind,
    hash_file,
    measure_file,
    open_source,
    parse_json,
    read_name,
    read_rows,
)
from evalsite.lib.text.characters import describe_unstorable

IMAGE_ONLY_COLUMNS = ["key", "image", "category"]
COMPARED_ROWS = 2000  # The first rows of a table, in which the column that names images is looked for.
NEARLY_ALL = 0.9


def read_items(
    source: Openable,
    *,
    mapping: Mapping[str, str] | None = None,
    images: Openable | None = None,
    limits: Limits = LIMITS,
    scratch: ScratchFolder | None = None,
    watch: Callable[[int], None] | None = None,
    leaves_out: bool = False,
) -> ItemReading:
    """Read a table, or a zip of images with or without a table in it, into items.

    `images` is a folder or a zip beside the table. A given mapping is merged over the guessed mapping; a field mapped
    to "" is left out. Images are written to `scratch`. `watch` is called with the number of each row.
    Every problem becomes an error in the reading, never an exception. Only a reading that is `ok` may be saved. With
    `leaves_out`, a row with an error is left out with a warning.
    """
    report = ReadingReport(limits.remarks, leaves_out=leaves_out)
    reading = ItemReading([], [], dict(mapping or {}), read_name(source), "", report, scratch)
    with ExitStack() as stack:
        try:
            file, _ = stack.enter_context(open_source(source))
            finder = _open_images(images, stack, limits)
            if measure_file(file) > limits.file_bytes:
                raise FileError(f"the file is larger than {limits.file_bytes // MIB} MiB")
            reading.source_sha256 = hash_file(file)
            table, name, inside = _split_archive(file, reading.source_name, limits)
            reading.scratch = reading.scratch or ScratchFolder()
            image_buffer = ImageBuffer(finder or inside, limits, reading.scratch)
            if name:
                reading.columns, rows = read_rows(table, name, reading.report, limits, reading.mapping.get(SHEET, ""))
            else:
                reading.columns, rows = IMAGE_ONLY_COLUMNS, _iterate_images(image_buffer.finder)
            by_values: dict[str, str] = {}
            if image_buffer.finder:
                first_rows = list(islice(rows, COMPARED_ROWS))
                by_values = guess_by_values(reading.columns, first_rows, image_buffer.finder)
                rows = chain(first_rows, rows)
            reading.mapping = _complete_mapping(reading, image_buffer.finder is not None, by_values)
            _ItemBuilder(reading, image_buffer, limits).read(_report_progress(rows, watch) if watch else rows)
        except FileError as error:
            report.error(None, "file" if not str(error).startswith("map ") else "mapping", str(error))
    if not reading.items and reading.ok:
        report.error(None, "file", "no row is valid" if report.left_out_total else "no items in it")
    return reading


def read_columns(
    source: Openable, *, images: Openable | None = None, limits: Limits = LIMITS, first: int = 5, sheet: str = ""
) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Return the columns, the first rows as text and the result of `guess_by_values`, for the mapping form.

    Raise FileError.
    """
    with ExitStack() as stack:
        file, name = stack.enter_context(open_source(source))
        file, name, inside = _split_archive(file, name, limits)
        if not name:
            return IMAGE_ONLY_COLUMNS, [], {}
        finder = _open_images(images, stack, limits) or inside
        report = ReadingReport()
        columns, rows = read_rows(file, name, report, limits, sheet)
        first_rows = list(islice(rows, COMPARED_ROWS if finder else first))
        if not first_rows and not report.error_total:
            raise FileError("the table has no rows below its header")
        preview = [[make_preview(row.values.get(column)) for column in columns] for row in first_rows[:first]]
        return columns, preview, guess_by_values(columns, first_rows, finder) if finder else {}


def guess_by_values(columns: Sequence[str], rows: Sequence[TableRow], finder: ImageFinder) -> dict[str, str]:
    """Return as `image` the column whose values are all or nearly all names of images, if there is one.

    It is the `key` too if the table has no column with a common name of keys, and each row names another image.
    A column that is guessed for another field than the key is not taken. Of several columns, one with a common name of
    image columns comes first, then the one with the most file names that have a suffix.
    """
    by_name = guess_mapping(columns)
    used = {column for field, column in by_name.items() if field not in ("key", "image")}
    found: dict[str, str] = {}
    best_rank = (False, -1)
    for column in columns:
        cells = [row.values.get(column) for row in rows]
        names = [name for cell in cells if isinstance(cell, str | int) and (name := to_text(cell).strip())]
        named = sum(bool(finder.list_matches(name)) for name in names)
        if column in used or not named or named < NEARLY_ALL * len(rows):
            continue
        whole = sum(PurePosixPath(name.lower()).suffix in IMAGE_SUFFIXES for name in names)
        if (rank := (column == by_name.get("image"), whole)) > best_rank:
            found, best_rank = {"image": column}, rank
            if "key" not in by_name and len(set(names)) == len(rows):
                found["key"] = column
    return found


def _open_images(images: Openable | None, stack: ExitStack, limits: Limits) -> ImageFinder | None:
    if images is None:
        return None
    if isinstance(images, Path | str) and Path(images).is_dir():
        return ImageFinder(FolderMembers(Path(images), limits))
    file, _ = stack.enter_context(open_source(images))
    return ImageFinder(ZipMembers(file, limits))


def _report_progress(rows: Iterator[TableRow], watch: Callable[[int], None]) -> Iterator[TableRow]:
    for row in rows:
        watch(row.number)
        yield row


def _split_archive(file: BinaryIO, name: str, limits: Limits) -> tuple[BinaryIO, str, ImageFinder | None]:
    """Return the table to read, its name, and the images that came with it.

    The name is "" if the file is a zip of images without a table.
    """
    if detect_kind(file, name) != "zip":
        return file, name, None
    archive = ZipMembers(file, limits)
    if "[Content_Types].xml" in archive.names():
        raise FileError("this is an office document; a spreadsheet needs a name that ends in .xlsx or .ods")
    tables = [name for name in archive.names() if PurePosixPath(name.lower()).suffix in TABLE_SUFFIXES - {".txt"}]
    if len(tables) > 1:
        raise FileError(f"the archive contains several tables: {', '.join(tables[:5])}; leave only one")
    finder = ImageFinder(archive)
    if not tables:
        return file, "", finder
    return io.BytesIO(archive.read_table(tables[0])), tables[0], finder


def _iterate_images(finder: ImageFinder | None) -> Iterator[TableRow]:
    """Yield one row per image of a zip without a table.

    The key is the name without its suffix. The category is the name of the folder.
    """
    for number, path in enumerate(sorted(finder.paths) if finder else [], 1):
        pure = PurePosixPath(path)
        yield TableRow(number, None, {"key": pure.stem, "image": path, "category": pure.parent.name})


def _complete_mapping(reading: ItemReading, has_images: bool, by_values: Mapping[str, str]) -> dict[str, str]:
    """Return the given mapping merged over the guessed one.

    A column that the given mapping uses for a field is not guessed for another field, except for the key.
    """
    mapping = reading.mapping
    guess = guess_mapping(reading.columns, by_values)
    may_hold_bytes = reading.source_name.lower().endswith(".parquet")
    if not has_images and "image" in guess and "image" not in mapping and not may_hold_bytes:
        del guess["image"]
    used_expressions = {text for field, text in mapping.items() if field != "key"}
    guess = {field: text for field, text in guess.items() if text not in used_expressions or field == "key"}
    return guess | mapping


class _ItemBuilder:
    """A builder that turns rows into items one by one and records the keys already used."""

    def __init__(self, reading: ItemReading, image_buffer: ImageBuffer, limits: Limits) -> None:
        self.reading, self.image_buffer, self.limits, self.report = reading, image_buffer, limits, reading.report
        expressions = {field: text for field, text in reading.mapping.items() if field != SHEET}
        self.bound = BoundMapping(expressions, reading.columns)
        self.first_row: dict[str, int] = {}

    def read(self, rows: Iterator[TableRow]) -> None:
        if not ("input" in self.bound or "image" in self.bound or self.image_buffer.finder is not None):
            images = guess_mapping(self.reading.columns).get("image")
            hint = f"; column {images!r} may name images, but none were given" if images else ""
            raise FileError(f"map input: choose a column; the file has {', '.join(self.reading.columns[:20])}{hint}")
        if "key" not in self.bound:
            self.report.warning(None, "key", "no column contains keys; rows are numbered row-00001, row-00002, ...")
        for row in rows:
            try:
                value = self._evaluate(row, "key") if "key" in self.bound else f"row-{row.number:05}"
                key = clean_key(value, self.limits)
                if isinstance(value, str) and value != key:
                    self.report.warning(row, "key", f"{value!r} is read as {key!r}")
                earlier = self.first_row.setdefault(key, row.number)
                if earlier != row.number:
                    raise BadField("key", f"{key!r} is the key of row {earlier} already")
                image = self._find_image(row, key)
                text = self._read_text(row, "input")
                if not text.strip() and image is None:
                    raise BadField("input", "neither an input nor an image")
                choices = clean_choices(self._evaluate(row, "choices"), self.limits)
                target = self._read_text(row, "target")
                if choices and target and not is_choice(target, choices):
                    self.report.warning(row, "target", f"{target[:60]!r} is none of the choices")
                item = ItemRecord(
                    key=key,
                    input=text,
                    image=image,
                    target=target,
                    choices=choices,
                    grading_scheme=self._read_text(row, "grading_scheme"),
                    category=clean_text(
                        "category", self._evaluate(row, "category"), self.limits.category_chars
                    ).strip(),
                    metadata=clean_metadata(row.values, self.bound.metadata, self.limits),
                    norms=tuple(
                        read_norm(row, key, *cells, self.report) for cells in find_norm_cells(row, self.bound.norms)
                    ),
                )
            except BadField as error:
                self.report.error(row, error.field, str(error))
            else:
                self.reading.items.append(item)

    def _evaluate(self, row: TableRow, field: str) -> Any:
        try:
            return self.bound.evaluate(field, row.values)
        except NoValue as error:
            raise BadField(field, str(error)) from None

    def _read_text(self, row: TableRow, field: str) -> str:
        return clean_text(field, self._evaluate(row, field), self.limits.text_chars)

    def _find_image(self, row: TableRow, key: str) -> BufferedImage | None:
        """Return the image named by the image column, or None.

        Use the key as the name if images were given but neither an image nor an input column is mapped.
        """
        value = self._evaluate(row, "image")
        is_key = "image" not in self.bound and self.image_buffer.finder is not None and "input" not in self.bound
        if is_key:
            value = key
        if isinstance(value, dict):  # Published image sets use this form: bytes and path.
            value = value.get("bytes") or value.get("path")
        try:
            if isinstance(value, bytes):
                return self.image_buffer.get_embedded(value)
            reference = clean_text("image", value, self.limits.text_chars).strip()
            return self.image_buffer.get_named(reference) if reference else None
        except NotFound as error:
            remedy = "; the key was read as its name, so map image to the column of file names" if is_key else ""
            raise BadField("image", f"{error}{remedy}") from None
        except BadImage as error:
            raise BadField("image", f"{to_text(value) if isinstance(value, str) else 'the image'} {error}") from None


def clean_text(field: str, value: Any, most: int) -> str:
    """Return the cell as text that PostgreSQL can store. Raise BadField if it cannot or is longer than `most`."""
    try:
        text = to_text(value)
    except NoValue as error:
        raise BadField(field, str(error)) from None
    if len(text) > most:
        raise BadField(field, f"has {len(text):,} characters; at most {most:,} are taken")
    if fault := describe_unstorable(text):
        raise BadField(field, fault)
    return text


def clean_key(value: Any, limits: Limits) -> str:
    """Return a key on one line, in Unicode NFC, without surrounding spaces, because keys are compared exactly."""
    key = unicodedata.normalize("NFC", clean_text("key", value, limits.key_chars)).strip()
    if not key:
        raise BadField("key", "is empty")
    if any(unicodedata.category(letter) == "Cc" for letter in key):
        raise BadField("key", f"{key!r} contains a control character or a line break")
    return key


def clean_choices(value: Any, limits: Limits) -> tuple[str, ...]:
    """Return the choices in a list, a JSON list, a text with "|", or {"text": [...]}. An empty cell has none."""
    parsed = _parse_choices(value)
    if len(parsed) == 1 or len(parsed) > limits.choices:
        raise BadField("choices", f"has {len(parsed)}; 2 to {limits.choices} are taken")
    choices = tuple(clean_text("choices", choice, limits.text_chars) for choice in parsed)
    if any(not choice.strip() for choice in choices):
        raise BadField("choices", f"number {[bool(choice.strip()) for choice in choices].index(False) + 1} is empty")
    return choices


def _parse_choices(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        return list(value["text"])
    if isinstance(value, list | tuple):
        return list(value)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                parsed = parse_json(text)
            except ValueError as error:
                raise BadField("choices", f"starts like a JSON list but is none: {error}") from None
            return list(parsed)
        if "|" not in text:
            raise BadField("choices", 'is no list; write ["one", "two"] or one|two')
        return [part.strip() for part in text.split("|")]
    raise BadField("choices", f"is {type(value).__name__}, not a list")


def is_choice(target: str, choices: tuple[str, ...]) -> bool:
    """Return whether the target names a choice by its letter, its text, or its number from 0."""
    letters = string.ascii_uppercase[: len(choices)]
    numbers = {str(number) for number in range(len(choices))}
    return target.strip().upper() in set(letters) or target.strip() in {c.strip() for c in choices} | numbers


def clean_metadata(row: Mapping[str, Any], columns: list[str], limits: Limits) -> dict[str, Any]:
    """Return the other columns as JSON data without empty cells. Raise BadField if they cannot be stored."""
    metadata = {column: row[column] for column in columns if row.get(column) not in (None, "")}
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField("metadata", f"cannot be stored as JSON: {error}") from None
    clean_text("metadata", text, limits.metadata_chars)
    if fault := describe_unstorable(metadata):
        raise BadField("metadata", fault)
    return metadata


class ImageBuffer:
    """A temporary store of images between reading and saving. Each image is decoded once and named by its hash."""

    def __init__(self, finder: ImageFinder | None, limits: Limits, scratch: ScratchFolder) -> None:
        self.finder = finder
        self.limits = limits
        self.scratch = scratch
        self.by_name: dict[str, BufferedImage | BadImage] = {}
        self.stored: set[str] = set()
        self.bytes = 0

    def get_named(self, reference: str) -> BufferedImage:
        """Return the image that a row names. Raise NotFound or BadImage with the reason."""
        if self.finder is None:
            raise NotFound(f"image {reference!r} is named, but no images were given")
        name = self.finder.find(reference)
        if name not in self.by_name:
            self.by_name[name] = self._decode(self.finder.source.read(name), PurePosixPath(name).name)
        return self._get(name)

    def get_embedded(self, data: bytes) -> BufferedImage:
        """Return the image whose bytes are in the table itself. Raise BadImage with the reason."""
        name = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if name not in self.by_name:
            self.by_name[name] = self._decode(data, "")
        return self._get(name)

    def _get(self, name: str) -> BufferedImage:
        image = self.by_name[name]
        if isinstance(image, BadImage):
            raise BadImage(*image.args)
        return image

    def _decode(self, data: bytes, original_name: str) -> BufferedImage | BadImage:
        try:
            image = read_image(data, self.limits)
        except BadImage as error:
            return error
        path = self.scratch.path / f"{image.sha256}.{image.format}"
        if image.sha256 not in self.stored:
            self.stored.add(image.sha256)
            self.bytes += len(image.data)
            if self.bytes > self.limits.unpacked_bytes:
                raise FileError(f"the images take more than {self.limits.unpacked_bytes // MIB} MiB once encoded again")
            path.write_bytes(image.data)
        return BufferedImage(
            image.sha256, path, image.format, image.width, image.height, len(image.data), original_name[-255:]
        )
