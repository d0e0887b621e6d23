"""The import itself: a file, a mapping and images in; items and row-numbered remarks out. All of it or nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from datasets_app.importing.archives import FolderMembers, ImageFinder, NotFound, ZipMembers
from datasets_app.importing.column_map import BoundMapping, NoValue, as_text, guess_mapping
from datasets_app.importing.file_source import Openable, name_of, opened
from datasets_app.importing.image_buffer import Stash
from datasets_app.importing.image_reader import BadImage
from datasets_app.importing.item_fields import (
    BadField,
    checked_choices,
    checked_key,
    checked_metadata,
    checked_text,
    is_among,
)
from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.norm_reader import row_norms
from datasets_app.importing.records import ItemRecord, Reading, Refused, Report, Row, ScratchFolder, StashedImage
from datasets_app.importing.table_readers import TABLE_SUFFIXES, file_sha256, file_size, kind_of, read_rows

IMAGE_ONLY_COLUMNS = ["key", "image", "category"]
PREVIEW_CHARS = 5_000


def read_items(
    source: Openable,
    *,
    mapping: Mapping[str, str] | None = None,
    images: Openable | None = None,
    limits: Limits = LIMITS,
    scratch: ScratchFolder | None = None,
    watch: Callable[[int], None] | None = None,
) -> Reading:
    """Read a table, or a zip of images with or without a table in it, into items.

    `images` is a folder or a zip beside the table. A mapping that is given is merged over the guessed one; a field
    mapped to "" is left out. Images go to `scratch`, and `watch` is called with the number of each row. Whatever is
    wrong ends up in the reading's errors, never in an exception: only a reading that is `ok` may be saved.
    """
    report = Report(limits.remarks)
    reading = Reading([], [], dict(mapping or {}), name_of(source), "", report, scratch)
    with ExitStack() as stack:
        try:
            file, _ = stack.enter_context(opened(source))
            _read_file(reading, file, _given_images(images, stack, limits), limits, watch)
        except Refused as error:
            report.error(None, "file" if not str(error).startswith("map ") else "mapping", str(error))
    if not reading.items and reading.ok:
        report.error(None, "file", "no items in it")
    return reading


def read_columns(source: Openable, *, limits: Limits = LIMITS, first: int = 5) -> tuple[list[str], list[list[str]]]:
    """The columns and the first rows as text, for a form that asks for the mapping. Refused if it cannot be read."""
    with opened(source) as (file, name):
        file, name, _ = _table_and_images(file, name, limits)
        if not name:
            return IMAGE_ONLY_COLUMNS, []
        columns, rows = read_rows(file, name, Report(), limits)
        preview = [
            [_preview(row.values.get(column)) for column in columns] for row, _ in zip(rows, range(first), strict=False)
        ]
        return columns, preview


def _preview(value: Any) -> str:
    try:
        text = as_text(value)
    except NoValue:
        text = "(bytes)"
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}… and {len(text) - PREVIEW_CHARS:,} more"


def _given_images(images: Openable | None, stack: ExitStack, limits: Limits) -> ImageFinder | None:
    if images is None:
        return None
    if isinstance(images, Path | str) and Path(images).is_dir():
        return ImageFinder(FolderMembers(Path(images), limits))
    file, _ = stack.enter_context(opened(images))
    return ImageFinder(ZipMembers(file, limits))


def _read_file(
    reading: Reading,
    file: BinaryIO,
    finder: ImageFinder | None,
    limits: Limits,
    watch: Callable[[int], None] | None,
) -> None:
    if file_size(file) > limits.file_bytes:
        raise Refused(f"the file is larger than {limits.file_bytes // MIB} MiB")
    reading.source_sha256 = file_sha256(file)
    table, name, inside = _table_and_images(file, reading.source_name, limits)
    reading.scratch = reading.scratch or ScratchFolder()
    stash = Stash(finder or inside, limits, reading.scratch)
    if name:
        reading.columns, rows = read_rows(table, name, reading.report, limits)
    else:
        reading.columns, rows = IMAGE_ONLY_COLUMNS, _rows_of_images(stash.finder)
    reading.mapping = _whole_mapping(reading, stash.finder is not None)
    _Assembly(reading, stash, limits).read(_watched(rows, watch) if watch else rows)


def _watched(rows: Iterator[Row], watch: Callable[[int], None]) -> Iterator[Row]:
    for row in rows:
        watch(row.number)
        yield row


def _table_and_images(file: BinaryIO, name: str, limits: Limits) -> tuple[BinaryIO, str, ImageFinder | None]:
    """The table to read and its name, "" where there is only a zip of images; and the images that came with it."""
    if kind_of(file, name) != "zip":
        return file, name, None
    archive = ZipMembers(file, limits)
    if "[Content_Types].xml" in archive.names():
        raise Refused("this is a spreadsheet or an office document; save the sheet as CSV")
    tables = [name for name in archive.names() if PurePosixPath(name.lower()).suffix in TABLE_SUFFIXES - {".txt"}]
    if len(tables) > 1:
        raise Refused(f"the archive holds several tables: {', '.join(tables[:5])}; leave one in it")
    finder = ImageFinder(archive)
    if not tables:
        return file, "", finder
    return io.BytesIO(archive.read_table(tables[0])), tables[0], finder


def _rows_of_images(finder: ImageFinder | None) -> Iterator[Row]:
    """A zip without a table: the key is the name without its ending, the category the folder it lies in."""
    for number, path in enumerate(sorted(finder.paths) if finder else [], 1):
        pure = PurePosixPath(path)
        yield Row(number, None, {"key": pure.stem, "image": path, "category": pure.parent.name})


def _whole_mapping(reading: Reading, has_images: bool) -> dict[str, str]:
    """What was asked for over what the names suggest. A column with a field of its own is not guessed for another."""
    asked = reading.mapping
    guessed = guess_mapping(reading.columns)
    if not has_images and "image" in guessed and "image" not in asked and not _holds_bytes(reading):
        del guessed["image"]
    taken = {text for field, text in asked.items() if field != "key"}
    guessed = {field: text for field, text in guessed.items() if text not in taken or field == "key"}
    return guessed | asked


def _holds_bytes(reading: Reading) -> bool:
    return reading.source_name.lower().endswith(".parquet")


class _Assembly:
    """Rows to items, one by one, remembering the keys that were seen."""

    def __init__(self, reading: Reading, stash: Stash, limits: Limits) -> None:
        self.reading, self.stash, self.limits, self.report = reading, stash, limits, reading.report
        self.bound = BoundMapping(reading.mapping, reading.columns)
        self.first_row: dict[str, int] = {}

    def read(self, rows: Iterator[Row]) -> None:
        self._check_mapping()
        if "key" not in self.bound:
            self.report.warning(None, "key", "no column holds keys; rows are numbered row-00001, row-00002, ...")
        for row in rows:
            try:
                item = self._item(row)
            except BadField as error:
                self.report.error(row, error.field, str(error))
            else:
                self.reading.items.append(item)

    def _check_mapping(self) -> None:
        """Once for the file, rather than for every row."""
        if "input" in self.bound or "image" in self.bound or self.stash.finder is not None:
            return
        images = guess_mapping(self.reading.columns).get("image")
        hint = f"column {images!r} may name images, but none were given" if images else "map one of them"
        raise Refused(f"map input: no column; there are {', '.join(self.reading.columns[:20])}: {hint}")

    def _item(self, row: Row) -> ItemRecord:
        key = self._key(row)
        image = self._image(row, key)
        text = self._text(row, "input")
        if not text.strip() and image is None:
            raise BadField("input", "neither an input nor an image")
        choices = checked_choices(self._value(row, "choices"), self.limits)
        target = self._text(row, "target")
        if choices and target and not is_among(target, choices):
            self.report.warning(row, "target", f"{target[:60]!r} is none of the choices")
        return ItemRecord(
            key=key,
            input=text,
            image=image,
            target=target,
            choices=choices,
            grading_scheme=self._text(row, "grading_scheme"),
            category=self._category(row),
            metadata=checked_metadata(row.values, self.bound.metadata, self.limits),
            norms=tuple(row_norms(key, row, self.bound.norms, self.report)),
        )

    def _value(self, row: Row, field: str) -> Any:
        try:
            return self.bound.value(field, row.values)
        except NoValue as error:
            raise BadField(field, str(error)) from None

    def _text(self, row: Row, field: str) -> str:
        return checked_text(field, self._value(row, field), self.limits.text_chars)

    def _category(self, row: Row) -> str:
        return checked_text("category", self._value(row, "category"), self.limits.category_chars).strip()

    def _key(self, row: Row) -> str:
        written = self._value(row, "key") if "key" in self.bound else f"row-{row.number:05}"
        key = checked_key(written, self.limits)
        if isinstance(written, str) and written != key:
            self.report.warning(row, "key", f"{written!r} is read as {key!r}")
        earlier = self.first_row.setdefault(key, row.number)
        if earlier != row.number:
            raise BadField("key", f"{key!r} is the key of row {earlier} already")
        return key

    def _image(self, row: Row, key: str) -> StashedImage | None:
        """By the image column; by the key where images were given but no column names them."""
        value = self._value(row, "image")
        if "image" not in self.bound and self.stash.finder is not None and "input" not in self.bound:
            value = key
        if isinstance(value, dict):  # As published image sets have it: the bytes beside their path.
            value = value.get("bytes") or value.get("path")
        try:
            if isinstance(value, bytes):
                return self.stash.by_content(value)
            wanted = checked_text("image", value, self.limits.text_chars).strip()
            return self.stash.by_path(wanted) if wanted else None
        except NotFound as error:
            raise BadField("image", str(error)) from None
        except BadImage as error:
            raise BadField("image", f"{as_text(value) if isinstance(value, str) else 'the image'} {error}") from None
