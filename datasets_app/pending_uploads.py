"""Uploads before their import: files under MEDIA_ROOT/uploads/<user>/<token>/, with what was found in them.

The web server only stores the files. A task of the queue (`datasets_app.upload_jobs`, for studies
`grading_app.study_import.import_jobs`) reads them in a separate process under limits; its progress is a
`BackgroundJob`. The description, the columns and the report of an upload are files beside it, because they quote
texts that the database cannot store. They are replaced atomically: `about.json`, `columns.json` and `report.json`. The
original name of a file is only displayed and used to guess its format. No path of an upload is ever built from it.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from datasets_app.importing import LIMITS, guess_mapping
from datasets_app.importing.column_map import SHEET
from datasets_app.importing.limited_reader import FileToRead, TableColumns
from datasets_app.importing.reader_output import report_from_json
from datasets_app.importing.records import ReadingReport, Remark
from datasets_app.models import BackgroundJob

TOKEN = re.compile(r"[0-9a-f]{32}\Z")
PARTS = ("items", "images", "norms")
MAX_BYTES = {"items": LIMITS.file_bytes, "images": LIMITS.file_bytes, "norms": LIMITS.table_bytes}
RESULTS = ("columns", "report")
THUMBNAILS = "thumbnails"
UPLOAD_LIFETIME_S = 24 * 3600
MAX_UPLOADS_PER_USER = 5
MIB = 2**20
READ_UPLOAD = "datasets_app.tasks.read_upload"
TASK_SECONDS = LIMITS.reader_seconds + 900  # Time to read the upload, and to store 100,000 items.
SUBJECT = "upload"  # The first word of the subject of an upload's jobs.


class TooLarge(Exception):
    """A file above the size limit. `part` is "items", "images" or "norms"."""

    def __init__(self, part: str) -> None:
        super().__init__(f"has more than {get_most_bytes(part) // MIB} MiB")
        self.part = part


def get_most_bytes(part: str) -> int:
    """Return the size limit of a part. A file of a study may have as many bytes as a file of items."""
    return MAX_BYTES.get(part, LIMITS.file_bytes)


@dataclass(frozen=True)
class JobResult:
    """The result of a check or an import, with the form input that it used, and the first items as they will be."""

    items: int
    norms: int
    report: ReadingReport
    norms_report: ReadingReport
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
    def subject(self) -> str:
        return f"{SUBJECT} {self.folder.parent.name}/{self.token}"

    @property
    def job(self) -> BackgroundJob | None:
        """Return the last job.

        Its kind is "columns" to find an upload's columns, "check" or "import" for its content, or "norms". The kind
        "preview" finds the columns and then checks the content; with `leaves_out`, rows with errors are left out. The
        kind "download" fetches a split of the hub first, and then finds its columns; its progress is in bytes. The kind
        "parametric" builds the space in the file; `mapping` then has how it is resolved. The kinds of studies are
        "study check" and "study import". The upload's report has the findings of a finished job. The result of a
        finished import has `dataset`, as [slug, version], or `experiment`, a slug.
        """
        return BackgroundJob.objects.filter(subject=self.subject).select_related("by").first()

    @property
    def outcome(self) -> JobResult | None:
        content = self.load("report")
        if content is None:
            return None
        content |= {name: report_from_json(content[name]) for name in ("report", "norms_report")}
        return JobResult(**content)

    def guess_mapping(self, table: TableColumns) -> dict[str, str]:
        """Return a mapping guessed from the columns. Guess an image column only if the upload has images."""
        mapping = guess_mapping(table.columns, table.by_values) | ({SHEET: table.sheet} if table.sheet else {})
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
        """Queue a job. Do nothing if another job of this upload is open and has not lost its worker."""
        parameters = {"mapping": dict(mapping or {}), "entered": dict(entered or {}), "leaves_out": leaves_out}
        user = User.objects.get(pk=self.folder.parent.name)
        BackgroundJob.objects.request(
            self.subject, kind, task=self.task, timeout_s=TASK_SECONDS, by=user, parameters=parameters
        )

    def retry_job(self) -> None:
        """Queue the last job again if it has ended, is late in the queue, or lost its worker."""
        if job := self.job:
            job.retry()

    def watch(self, job: BackgroundJob) -> Callable[..., None]:
        """Return a function that reports the job's progress. It raises FileNotFoundError once the user discards it."""

        def watch(done: int, total: int | None = None) -> None:
            if not self.folder.is_dir():
                raise FileNotFoundError(self.folder)
            job.report(done, total)

        return watch

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
        """Delete the columns, the report and the jobs of earlier files, before new files are read."""
        BackgroundJob.objects.filter(subject=self.subject).delete()
        for name in RESULTS:
            (self.folder / f"{name}.json").unlink(missing_ok=True)

    def forget_reading(self) -> None:
        """Delete the report of the last reading, before another sheet of the same file is read."""
        (self.folder / "report.json").unlink(missing_ok=True)

    def get_thumbnail_file(self, sha256: str) -> Path:
        """Return the place of the thumbnail of one of the first items. The name must consist of letters and digits."""
        return self.folder / THUMBNAILS / f"{sha256}.jpeg"

    def store_thumbnails(self, thumbnails: Mapping[str, bytes]) -> None:
        """Replace the thumbnails of the first items. They are addressed by the hashes of their images."""
        shutil.rmtree(self.folder / THUMBNAILS, ignore_errors=True)
        for sha256, content in thumbnails.items():
            path = self.get_thumbnail_file(sha256)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(content)

    def remove_files(self) -> None:
        for part in self.names:
            (self.folder / part).unlink(missing_ok=True)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        BackgroundJob.objects.filter(subject=self.subject).delete()


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


def find_upload_of(job: BackgroundJob) -> PendingUpload | None:
    """Return the upload of a job, or None if the user has discarded it."""
    user_key, _, token = job.subject.removeprefix(f"{SUBJECT} ").partition("/")
    return find_upload(user_key, token, job.task)


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
