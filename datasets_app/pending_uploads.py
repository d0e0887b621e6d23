"""Uploads before their import: files under MEDIA_ROOT/uploads/<user>/<token>/, with their job and its result.

The web server only stores the files. A task of the queue (`datasets_app.upload_jobs`, for studies
`grading_app.study_import.import_jobs`) reads them in a separate process under limits. The request with its progress,
the columns and the result are files beside the upload. They are replaced atomically: `job.json`, `columns.json` and
`report.json`. The original name of a file is only displayed and used to guess its format. No path of an upload is ever
built from it.
"""

from __future__ import annotations

import fcntl
import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from datasets_app.importing import LIMITS, guess_mapping
from datasets_app.importing.limited_reader import FileToRead, TableColumns
from datasets_app.importing.reader_output import report_from_json
from datasets_app.importing.records import ImportReport, Remark

TOKEN = re.compile(r"[0-9a-f]{32}\Z")
PARTS = ("items", "images", "norms")
MAX_BYTES = {"items": LIMITS.file_bytes, "images": LIMITS.file_bytes, "norms": LIMITS.table_bytes}
RESULTS = ("columns", "report", "job")
UPLOAD_LIFETIME_S = 24 * 3600
MAX_UPLOADS_PER_USER = 5
MIB = 2**20
READ_UPLOAD = "datasets_app.tasks.read_upload"
TASK_SECONDS = LIMITS.reader_seconds + 900  # Time to read the upload, and to store 100,000 items.
SLOW_START_S = 10.0  # A queue with a free worker starts a task within a second.
SILENT_S = 20.0  # A worker that reads reports progress every second.


class TooLarge(Exception):
    """A file above the size limit. `part` is "items", "images" or "norms"."""

    def __init__(self, part: str) -> None:
        super().__init__(f"has more than {get_most_bytes(part) // MIB} MiB")
        self.part = part


def get_most_bytes(part: str) -> int:
    """Return the size limit of a part. A file of a study may have as many bytes as a file of items."""
    return MAX_BYTES.get(part, LIMITS.file_bytes)


@dataclass(frozen=True)
class UploadJob:
    """A request to find an upload's "columns", to "check" its content, to "import" it, or to import "norms".

    The kind "preview" finds the columns and then checks the content. With `leaves_out`, rows with errors are left out.
    The kind "download" fetches a split of the hub first, and then finds its columns; `rows` and `total` are bytes. The
    kind "parametric" builds the space in the file; `mapping` then has how it is resolved, and `total` its cases.

    `state` goes from "queued" through "reading" and "saving" to "done" or "failed". The upload's report contains the
    result of a finished job. A finished import also has `dataset`, as [slug, version], or `experiment`, a slug. A
    failed job has an error.
    """

    key: str
    kind: str
    state: str = "queued"
    requested_at: float = 0.0
    seen_at: float = 0.0
    rows: int = 0
    total: int = 0
    error: str = ""
    mapping: Mapping[str, str] | None = None
    entered: Mapping[str, str] | None = None
    leaves_out: bool = False
    saving_since: float = 0.0
    dataset: list[Any] | None = None
    experiment: str = ""

    @property
    def is_active(self) -> bool:
        return self.state in ("queued", "reading", "saving")

    @property
    def queued_s(self) -> int:
        return int(time.time() - self.requested_at)

    @property
    def is_late(self) -> bool:
        """Return whether the job has been queued for longer than a free worker needs to start it."""
        return self.state == "queued" and self.queued_s >= SLOW_START_S


@dataclass(frozen=True)
class JobResult:
    """The result of a check or an import, with the form input that it used, and the first items as they will be."""

    items: int
    norms: int
    report: ImportReport
    norms_report: ImportReport
    entered: Mapping[str, str]
    error: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    first_items: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.report.error_total or self.norms_report.error_total or self.error)


@dataclass(frozen=True)
class PendingUpload:
    """An upload between its two steps. `names` maps parts to original file names; `about` has dataset fields.

    `norms_of` is the key of the draft that gets the norms of the upload; None for an upload of items. `task` is the
    dotted name of the task that performs its jobs. `download` is the request for a split of the hub; `origin` has the
    `source`, `licence` and `recipe` of the file that a worker downloaded.
    """

    folder: Path
    slug: str
    names: Mapping[str, str]
    about: Mapping[str, str]
    norms_of: int | None = None
    task: str = READ_UPLOAD
    download: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return self.folder.name

    @property
    def table_name(self) -> str:
        """Return the name of the items file, of the only file, a table of norms, or of the files of a study.

        Before a download, return the dataset's name on the hub.
        A template cannot use `names.items`, which is the dict's method.
        """
        first = self.names.get("items", "") or self.names.get("norms", "") or ", ".join(self.file_names)
        return first or self.download.get("repository", "")

    @property
    def file_names(self) -> list[str]:
        other_parts = [part for part in self.names if part not in PARTS]
        return [self.names[part] for part in (*PARTS, *other_parts) if part in self.names]

    @property
    def files(self) -> dict[str, FileToRead]:
        return {part: FileToRead(self.folder / part, name) for part, name in self.names.items()}

    @property
    def table(self) -> TableColumns | None:
        """Return the columns, or None until a worker has found them."""
        content = self.load("columns")
        return TableColumns(**content) if content else None

    @property
    def job(self) -> UploadJob | None:
        content = self.load("job")
        return UploadJob(**content) if content else None

    @property
    def outcome(self) -> JobResult | None:
        content = self.load("report")
        if content is None:
            return None
        content |= {name: report_from_json(content[name]) for name in ("report", "norms_report")}
        return JobResult(**content)

    @property
    def is_orphaned(self) -> bool:
        """Return whether the worker that read the upload has stopped without a result."""
        job = self.job
        if job is None or job.state not in ("reading", "saving") or time.time() - job.seen_at < SILENT_S:
            return False
        with self.try_lock() as has_lock:
            return has_lock

    def guess_mapping(self, table: TableColumns) -> dict[str, str]:
        """Return a mapping guessed from the columns' names. Guess an image column only if the upload has images."""
        mapping = guess_mapping(table.columns)
        if "images" in self.names or table.brings_images:
            return mapping
        return {field: text for field, text in mapping.items() if field != "image"}

    def describe(self, slug: str, about: Mapping[str, str]) -> PendingUpload:
        """Store another name and description, and return the changed upload."""
        changed = replace(self, slug=slug, about=dict(about))
        content = asdict(changed)
        del content["folder"]
        changed.store("about", content)
        return changed

    def add_download(self, path: Path, name: str, origin: Mapping[str, Any]) -> PendingUpload:
        """Move a downloaded file into the upload as its items, and return the changed upload."""
        shutil.move(path, self.folder / "items")
        return replace(self, names={"items": name}, origin=dict(origin)).describe(self.slug, self.about)

    @property
    def dataset_fields(self) -> dict[str, Any]:
        """Return the fields of the dataset: those that the user entered, with the origin of a downloaded file."""
        fields: dict[str, Any] = dict(self.about)
        if self.origin:
            fields["source"] = "\n".join(text for text in (fields.get("source"), self.origin["source"]) if text)
            fields["licence"] = fields.get("licence") or self.origin["licence"]
            fields["recipe"] = self.origin["recipe"]
        return fields

    def request_job(
        self,
        kind: str,
        mapping: Mapping[str, str] | None = None,
        entered: Mapping[str, str] | None = None,
        *,
        leaves_out: bool = False,
    ) -> None:
        """Queue a job. Do nothing if another job of this upload is active and has not lost its worker."""
        job = self.job
        if job and job.is_active and not self.is_orphaned:
            return
        request = UploadJob(
            secrets.token_hex(8),
            kind,
            requested_at=time.time(),
            mapping=mapping,
            entered=entered,
            leaves_out=leaves_out,
        )
        self.store_job(request)
        self._enqueue(request)

    def retry_job(self) -> None:
        """Queue the last job again if it has ended, is late in the queue, or lost its worker."""
        job = self.job
        if job and (not job.is_active or job.is_late or self.is_orphaned):
            request = replace(job, key=secrets.token_hex(8), state="queued", requested_at=time.time(), error="", rows=0)
            self.store_job(request)
            self._enqueue(request)

    def _enqueue(self, job: UploadJob) -> None:
        from django_q.tasks import async_task

        async_task(self.task, self.folder.parent.name, self.token, job.key, save=False, timeout=TASK_SECONDS)

    def store_job(self, job: UploadJob) -> None:
        self.store("job", asdict(job))

    def store(self, name: str, content: Any) -> None:
        """Replace one of the files beside the upload atomically."""
        draft = self.folder / f".{name}.{secrets.token_hex(4)}"
        draft.write_text(json.dumps(content))
        draft.replace(self.folder / f"{name}.json")

    def load(self, name: str) -> Any:
        """Return the content that `store` wrote, or None."""
        try:
            return json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return None

    def delete_result(self) -> None:
        """Delete the columns, the report and the job of earlier files, before new files are read."""
        for name in RESULTS:
            (self.folder / f"{name}.json").unlink(missing_ok=True)

    def remove_files(self) -> None:
        for part in self.names:
            (self.folder / part).unlink(missing_ok=True)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Try to lock this upload for the block, and yield whether this succeeded.

        The kernel releases the lock if the process dies.
        """
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def stage_upload(
    user: Any,
    files: Mapping[str, Any],
    *,
    slug: str,
    about: Mapping[str, str],
    previous: PendingUpload | None = None,
    norms_of: int | None = None,
    task: str = READ_UPLOAD,
    download: Mapping[str, str] | None = None,
) -> PendingUpload:
    """Store uploaded files (part -> UploadedFile) until their mapping is complete.

    With `previous`, an earlier upload, the files replace its files of the same parts. With `download`, a request for a
    split of the hub, a worker's file replaces all of them. If a file is too large, raise TooLarge and store nothing.
    """
    if previous is None:
        _delete_old_uploads(user)
    folder = previous.folder if previous else _get_user_folder(user) / secrets.token_hex(16)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    names = {**(previous.names if previous else {}), **{part: file.name for part, file in files.items()}}
    upload = PendingUpload(folder, slug, names, about, norms_of, task)
    if download is not None:
        upload.remove_files()
        upload = replace(upload, names={}, download=download)
    elif previous and "items" not in files:
        upload = replace(upload, download=previous.download, origin=previous.origin)
    try:
        for part, file in files.items():
            (folder / f".{part}.new").unlink(missing_ok=True)
            copy_file(part, file, folder / f".{part}.new")
    except BaseException:
        for part in files:
            (folder / f".{part}.new").unlink(missing_ok=True)
        if previous is None:
            upload.discard()
        raise
    for part in files:
        (folder / f".{part}.new").replace(folder / part)
    if files or download is not None:
        upload.delete_result()
    return upload.describe(slug, about)


def find_upload(user_key: Any, token: str, task: str = READ_UPLOAD) -> PendingUpload | None:
    """Return the user's own upload with this token for this task, or None if it does not exist."""
    folder = _get_uploads_folder() / str(int(user_key)) / token
    if not TOKEN.match(token) or not (folder / "about.json").is_file():
        return None
    upload = PendingUpload(folder, **json.loads((folder / "about.json").read_text()))
    return upload if upload.task == task else None


def collect_mapping_errors(remarks: list[Remark]) -> dict[str, str]:
    """Return field -> message for remarks about the mapping, such as "map key: no column 'x'"."""
    matches = (re.match(r"map (\w+): (.+)", remark.message, re.DOTALL) for remark in remarks if remark.row is None)
    return {match[1]: match[2] for match in matches if match}


def _get_uploads_folder() -> Path:
    return Path(settings.MEDIA_ROOT) / "uploads"


def _get_user_folder(user: Any) -> Path:
    return _get_uploads_folder() / str(int(user.pk))


def copy_file(part: str, file: Any, target: Path) -> None:
    """Write an uploaded file. Raise TooLarge if it exceeds the limit of its part."""
    size = 0
    with target.open("xb") as out:
        for chunk in file.chunks():
            size += len(chunk)
            if size > get_most_bytes(part):
                raise TooLarge(part)
            out.write(chunk)


def _delete_old_uploads(user: Any) -> None:
    """Delete every upload older than a day, and the user's oldest uploads.

    With the next new upload, the user then has at most KEPT_PER_USER.
    """
    mine = sorted(_get_user_folder(user).glob("*"), key=_measure_age)
    everyone = _get_uploads_folder().glob("*/*")
    old = [folder for folder in everyone if _measure_age(folder) > UPLOAD_LIFETIME_S]
    for folder in {*old, *mine[MAX_UPLOADS_PER_USER - 1 :]}:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_age(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
