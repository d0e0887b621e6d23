"""Uploads that wait for their mapping: files under MEDIA_ROOT/uploads/<user>/<token>/, and what becomes of them.

Names that came with a file are text to show and to guess a format by; no path is ever made from one.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files import File
from django.db import transaction

from datasets_app.drafts import CurationError, note
from datasets_app.importing import LIMITS, NormReading, Reading, Refused, guess_mapping, read_columns, read_items
from datasets_app.importing import read_norms as read_norm_table
from datasets_app.importing.records import Remark, Report
from datasets_app.importing.saving import create_dataset, save_norms
from datasets_app.importing.sources import kind_of
from datasets_app.models import Dataset
from datasets_app.models.history import Actor

TOKEN = re.compile(r"[0-9a-f]{32}\Z")
MOST_BYTES = {"items": LIMITS.file_bytes, "images": LIMITS.file_bytes, "norms": LIMITS.table_bytes}
KEPT_SECONDS = 24 * 3600
KEPT_PER_USER = 5
MIB = 2**20


class TooLarge(Exception):
    """The file has more bytes than are taken; `part` is "items", "images" or "norms"."""

    def __init__(self, part: str) -> None:
        super().__init__(f"has more than {MOST_BYTES[part] // MIB} MiB")
        self.part = part


@dataclass(frozen=True)
class Waiting:
    """One upload between its two steps: `names` are the files' own names by part, `about` fields of the dataset."""

    folder: Path
    slug: str
    names: Mapping[str, str]
    about: Mapping[str, str]

    @property
    def token(self) -> str:
        return self.folder.name

    @property
    def table_name(self) -> str:
        """In a template `names.items` would be the mapping's method."""
        return self.names["items"]

    @contextmanager
    def opened(self, part: str) -> Iterator[Any]:
        """The file of a part under its own name, or None where there is none."""
        if part not in self.names:
            yield None
            return
        with (self.folder / part).open("rb") as file:
            yield File(file, name=self.names[part])

    def columns(self) -> tuple[list[str], list[list[str]]]:
        """The table's columns and its first rows; `Refused` where it cannot be read."""
        with self.opened("items") as file:
            return read_columns(file)

    def guess(self, columns: list[str]) -> dict[str, str]:
        """What the columns' names suggest; an image only where there are images to find."""
        guessed = guess_mapping(columns)
        with self.opened("items") as file:
            brings_images = "images" in self.names or kind_of(file, self.names["items"]) in ("zip", "parquet")
        return guessed if brings_images else {field: text for field, text in guessed.items() if field != "image"}

    def read(self, mapping: Mapping[str, str]) -> tuple[Reading, NormReading]:
        """Items and norms, with whatever is wrong in their reports. Norms are looked at once the items are right."""
        with ExitStack() as stack:
            file, images, norms = (stack.enter_context(self.opened(part)) for part in ("items", "images", "norms"))
            reading = read_items(file, mapping=mapping, images=images)
            if norms is None or not reading.ok:
                return reading, NormReading()
            return reading, read_norm_table(norms, {item.key: item.category for item in reading.items})

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """One import of this upload at a time, and only one that succeeds; CurationError for another."""
        taken = self.folder.with_suffix(".taken")
        try:
            self.folder.rename(taken)  # Of two at once, one finds it gone.
        except FileNotFoundError:
            raise CurationError("this upload is being imported already; look for it in the list") from None
        try:
            yield
        except BaseException:
            taken.rename(self.folder)
            raise
        shutil.rmtree(taken, ignore_errors=True)


def stage(user: Any, files: Mapping[str, Any], *, slug: str, about: Mapping[str, str]) -> Waiting:
    """Keep uploaded files (part -> UploadedFile) until their mapping is known; TooLarge, and nothing kept, if so."""
    _sweep(user)
    folder = _folder_of(user) / secrets.token_hex(16)
    folder.mkdir(parents=True, mode=0o700)
    waiting = Waiting(folder, slug, {part: file.name for part, file in files.items()}, about)
    try:
        for part, file in files.items():
            _copy(part, file, folder / part)
        details = {name: value for name, value in asdict(waiting).items() if name != "folder"}
        (folder / "about.json").write_text(json.dumps(details))
    except BaseException:
        waiting.discard()
        raise
    return waiting


def waiting_upload(user: Any, token: str) -> Waiting | None:
    """The person's own upload of this token; None where it is not, or no longer, there."""
    folder = _folder_of(user) / token
    if not TOKEN.match(token) or not (folder / "about.json").is_file():
        return None
    return Waiting(folder, **json.loads((folder / "about.json").read_text()))


def save(waiting: Waiting, reading: Reading, norms: NormReading, *, by: Actor) -> Dataset:
    """A new draft of what was read without an error; what was warned of is kept in its history. The files go."""
    with waiting.claimed(), transaction.atomic():
        dataset = create_dataset(reading, slug=waiting.slug, by=by, norms=norms.norms, **waiting.about)
        keep_warnings(dataset, reading.report, waiting.names["items"], by=by)
        keep_warnings(dataset, norms.report, waiting.names.get("norms", ""), by=by)
    return dataset


@transaction.atomic
def import_norms(dataset: Dataset, file: Any, *, by: Actor) -> NormReading:
    """Norms of a table to a draft's items. With an error in the reading nothing was saved."""
    reading = read_norm_table(file, dict(dataset.items.values_list("key", "category")))
    if reading.ok and reading.norms:
        save_norms(dataset, reading.norms, by=by)
        keep_warnings(dataset, reading.report, file.name, by=by)
    return reading


def keep_warnings(dataset: Dataset, report: Report, name: str, *, by: Actor) -> None:
    """One line of history with every remark that was kept."""
    if not report.warning_total:
        return
    lines = [str(remark) for remark in report.warnings]
    if report.warning_total > len(lines):
        lines.append(f"and {report.warning_total - len(lines)} more")
    total = report.warning_total
    note(dataset, "warnings", f"{total} warning{'' if total == 1 else 's'} in {name}", by=by, reason="\n".join(lines))


def misplaced(remarks: list[Remark]) -> dict[str, str]:
    """Field of the mapping -> what is wrong with its expression, from remarks such as "map key: no column 'x'"."""
    found = (re.match(r"map (\w+): (.+)", remark.message, re.DOTALL) for remark in remarks if remark.row is None)
    return {match[1]: match[2] for match in found if match}


def refusal(waiting: Waiting) -> str:
    """Why the table of an upload cannot be read at all; "" where it can."""
    try:
        waiting.columns()
    except Refused as error:
        return str(error)
    return ""


def _folder_of(user: Any) -> Path:
    return Path(settings.MEDIA_ROOT) / "uploads" / str(int(user.pk))


def _copy(part: str, file: Any, target: Path) -> None:
    size = 0
    with target.open("xb") as out:
        for chunk in file.chunks():
            size += len(chunk)
            if size > MOST_BYTES[part]:
                raise TooLarge(part)
            out.write(chunk)


def _sweep(user: Any) -> None:
    """Forget every upload older than a day, and this person's oldest beyond a handful."""
    mine = sorted(_folder_of(user).glob("*"), key=_age)
    everyone = (Path(settings.MEDIA_ROOT) / "uploads").glob("*/*")
    old = [folder for folder in everyone if _age(folder) > KEPT_SECONDS]
    for folder in {*old, *mine[KEPT_PER_USER - 1 :]}:
        shutil.rmtree(folder, ignore_errors=True)


def _age(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
