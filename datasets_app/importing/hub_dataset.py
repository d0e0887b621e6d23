"""A split of a dataset on the Hugging Face hub, downloaded at one commit.

The revision is resolved to a commit first, and every file is downloaded at that commit. So the same commit gives the
same rows for ever, whatever happens to its branch.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from datasets_app.importing.limited_reader import FileToRead, run_reader
from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.records import FileError, ScratchFolder
from datasets_app.importing.table_dump import READER

COMMIT = re.compile(r"[0-9a-f]{40}\Z")
SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
SHARDS = "items"
TIMEOUT_S = 30.0
MAX_SHARDS = 100
ELSEWHERE = "or download the file elsewhere and import it"
REPORT_S = 1.0
WatchBytes = Callable[[int, int], None]  # Called with the bytes that have arrived, and with all bytes.


@dataclass(frozen=True)
class HubSplit:
    """The files of a split at a commit, downloaded as one file. It exists as long as `scratch`."""

    repository: str
    commit: str
    configuration: str
    split: str
    names: tuple[str, ...]
    licence: str
    file: FileToRead
    scratch: Sequence[ScratchFolder]

    @property
    def source(self) -> str:
        """Return the citation of the dataset's source, with the commit."""
        configuration = f", configuration {self.configuration}" if self.configuration else ""
        split = f", split {self.split}" if self.split else ""
        return f"Hugging Face hub: {self.repository}{configuration}{split}, revision {self.commit}"

    @property
    def recipe(self) -> dict[str, Any]:
        return {
            "hub": self.repository,
            "configuration": self.configuration,
            "split": self.split,
            "revision": self.commit,
            "files": list(self.names),
        }


def download_split(
    repository: str,
    *,
    configuration: str = "",
    split: str = "",
    revision: str = "main",
    data_file: str = "",
    limits: Limits = LIMITS,
    uses_token: bool = True,
    watch: WatchBytes | None = None,
) -> HubSplit:
    """Download a split at the commit that the revision is now. Raise FileError, which says what to do.

    data_file: a file of the repository, where its split cannot be found by its name or by the dataset's card.
    uses_token: False downloads public datasets only, because HF_TOKEN may open what its owner alone should read.
    watch: called about once a second, in a thread.
    """
    from huggingface_hub import HfApi, constants

    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT
    token = _read_token(endpoint) if uses_token else ""
    errors = _ErrorContext(repository, revision, endpoint, uses_token)
    with _translate_errors(errors):
        api = HfApi(endpoint=endpoint, token=token or False)
        info = api.dataset_info(repository, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
    commit = str(info.sha or "")
    if not COMMIT.match(commit):
        raise FileError(f"{repository}: the hub gave no commit for the revision {revision!r}")
    sizes = {str(file.rfilename): file.size for file in info.siblings or []}
    card = info.card_data.to_dict() if info.card_data else {}
    names = _select_files(repository, sizes, card, configuration, split, data_file)
    _check_sizes({name: sizes[name] for name in names}, limits)
    scratch = ScratchFolder()
    total = sum(size for name in names if isinstance(size := sizes[name], int))
    with _translate_errors(errors), _report_bytes(scratch.path, total, watch):
        paths = [_download(repository, name, commit, endpoint, token, scratch.path, limits) for name in names]
    file_name = f"{repository.rpartition('/')[2]}@{commit[:12]}-{Path(names[0]).name}"
    file, folders = FileToRead(paths[0], file_name), [scratch]
    if len(paths) > 1:
        joined = _join_shards(dict(zip(names, paths, strict=True)), limits)
        file, folders = FileToRead(joined.path / f"{SHARDS}.jsonl", f"{file_name}.jsonl"), [scratch, joined]
    licence = card.get("license")
    licences = [name for name in (licence if isinstance(licence, list) else [licence]) if isinstance(name, str)]
    return HubSplit(repository, commit, configuration, split, names, ", ".join(licences)[:200], file, folders)


def _read_token(endpoint: str) -> str:
    """Return HF_TOKEN. Raise FileError if it would be sent unencrypted to another machine."""
    token = os.environ.get("HF_TOKEN", "")
    address = urlsplit(endpoint)
    try:
        is_loopback = ipaddress.ip_address(address.hostname or "").is_loopback
    except ValueError:
        is_loopback = address.hostname == "localhost"
    if token and address.scheme != "https" and not is_loopback:
        raise FileError("HF_ENDPOINT does not start with https://, so HF_TOKEN would be sent unencrypted: unset one")
    return token


@contextmanager
def _report_bytes(folder: Path, total: int, watch: WatchBytes | None) -> Iterator[None]:
    """Call `watch` about once a second during the block, in a thread, with the bytes in the folder."""
    if watch is None:
        yield
        return
    is_over = Event()

    def report() -> None:
        while not is_over.wait(REPORT_S):
            try:
                watch(min(total, _measure_folder(folder)), total)
            except FileNotFoundError:
                return  # The user discarded the download.

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _measure_folder(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += 0 if path.is_symlink() or path.is_dir() else path.stat().st_size
        except FileNotFoundError:
            continue  # It was renamed.
    return total


@dataclass(frozen=True)
class _ErrorContext:
    repository: str
    revision: str
    endpoint: str
    uses_token: bool

    @property
    def advice(self) -> str:
        if self.uses_token:
            return "set HF_TOKEN"
        return "ask an operator to run `manage.py dataset download`, because pages download public datasets only"


@contextmanager
def _translate_errors(context: _ErrorContext) -> Iterator[None]:
    """Turn the errors of the hub's client into FileError. Their own texts may hold addresses with signatures."""
    import httpx
    from huggingface_hub import errors
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    repository, revision = context.repository, context.revision
    try:
        yield
    except FileError:
        raise
    except errors.HFValidationError:
        raise FileError(f"{repository!r} is not the name of a dataset on the hub: write OWNER/NAME") from None
    except errors.GatedRepoError:
        raise FileError(f"{repository} is gated: accept its terms on the hub, then {context.advice}") from None
    except errors.RepositoryNotFoundError:
        raise FileError(f"the hub has no dataset {repository}; if it is private, {context.advice}") from None
    except errors.RevisionNotFoundError:
        raise FileError(f"{repository} has no revision {revision!r}: name a branch, a tag or a commit") from None
    except errors.EntryNotFoundError as error:
        if not isinstance(error, errors.LocalEntryNotFoundError):
            raise FileError(f"{repository}: a file is not in the revision {revision!r}") from None
        raise FileError(_explain_unreachable(context.endpoint)) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        raise FileError(f"the hub answered {status} for {repository}: try again later, {ELSEWHERE}") from None
    except (OSError, httpx.HTTPError):
        raise FileError(_explain_unreachable(context.endpoint)) from None


def _explain_unreachable(endpoint: str) -> str:
    return (
        f"the Hugging Face hub at {urlsplit(endpoint).hostname} cannot be reached: check the network and HTTPS_PROXY, "
        f"set HF_ENDPOINT to a mirror, {ELSEWHERE}"
    )


# --- files ------------------------------------------------------------------------------------------------------------


def _select_files(
    repository: str, sizes: Mapping[str, Any], card: Mapping[str, Any], configuration: str, split: str, data_file: str
) -> tuple[str, ...]:
    """Return the files of the split: the given one, those of the dataset's card, or those with its name."""
    tables = sorted(name for name in sizes if name.lower().endswith(SUFFIXES))
    if data_file:
        matches = [name for name in tables if name == data_file]
    else:
        patterns = _read_card_patterns(card, configuration, split) or _list_usual_patterns(configuration, split)
        matches = [name for name in tables if any(fnmatchcase(name, pattern) for pattern in patterns)]
    parquet = [name for name in matches if name.endswith(".parquet")]
    matches = parquet or matches
    if not matches:
        listed = ", ".join(tables[:10]) or "none"
        raise FileError(
            f"{repository}: no file of {_describe(configuration, split, data_file)} was found; choose a "
            f"data file: {listed}{', ...' if len(tables) > 10 else ''}"
        )
    if len(matches) > 1 and (not parquet or len(matches) > MAX_SHARDS):
        raise FileError(
            f"{repository}: {len(matches)} files fit {_describe(configuration, split, data_file)}; only up to "
            f"{MAX_SHARDS} Parquet files are joined; choose a data file: {', '.join(matches[:10])}"
        )
    return tuple(matches)


def _describe(configuration: str, split: str, data_file: str) -> str:
    if data_file:
        return f"the name {data_file!r}"
    of = f" of the configuration {configuration!r}" if configuration else ""
    return (f"the split {split!r}" if split else "the dataset") + of


def _read_card_patterns(card: Mapping[str, Any], configuration: str, split: str) -> list[str]:
    """Return the paths that the card gives for the split. A path may have * and ?."""
    configs = card.get("configs")
    entries = [config for config in configs if isinstance(config, Mapping)] if isinstance(configs, list) else []
    name = configuration or "default"
    matches = [config for config in entries if config.get("config_name") == name]
    if not matches and not configuration and len(entries) == 1:
        matches = entries
    patterns: list[str] = []
    for config in matches:
        files = config.get("data_files")
        for entry in files if isinstance(files, list) else [files]:
            if isinstance(entry, Mapping) and (not split or entry.get("split") == split):
                paths = entry.get("path")
                patterns += [str(path) for path in (paths if isinstance(paths, list) else [paths])]
            elif isinstance(entry, str) and split in ("", "train"):
                patterns.append(entry)
    return patterns


def _list_usual_patterns(configuration: str, split: str) -> list[str]:
    """Return the usual paths of a split, such as `data/test-00000-of-00001.parquet` or `main/test.jsonl`."""
    folders = [f"{configuration}/", f"data/{configuration}/"] if configuration else ["", "data/"]
    names = [f"{split}{suffix}" for suffix in SUFFIXES] + [f"{split}-*{suffix}" for suffix in SUFFIXES]
    return [folder + name for folder in folders for name in (names if split else [f"*{suffix}" for suffix in SUFFIXES])]


def _check_sizes(sizes: Mapping[str, Any], limits: Limits) -> None:
    total = sum(size for size in sizes.values() if isinstance(size, int))
    if total > limits.file_bytes:
        raise FileError(
            f"{', '.join(sizes)}: {total // MIB} MiB; at most {limits.file_bytes // MIB} MiB are read; choose a "
            "smaller split or a data file"
        )


def _download(repository: str, name: str, commit: str, endpoint: str, token: str, folder: Path, limits: Limits) -> Path:
    from huggingface_hub import hf_hub_download

    options: dict[str, Any] = {
        "repo_type": "dataset", "revision": commit, "endpoint": endpoint, "token": token or False,
        "cache_dir": folder / "cache", "etag_timeout": TIMEOUT_S,
    }  # fmt: skip
    announced: Any = hf_hub_download(repository, name, dry_run=True, **options)
    _check_sizes({name: announced.file_size}, limits)
    path = Path(hf_hub_download(repository, name, **options)).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise FileError(f"{repository}: {name!r} leads out of the download")
    _check_sizes({name: path.stat().st_size}, limits)
    # The cache stores content under its hash, without the suffix that says what it is.
    target = folder / f"{len(list(folder.iterdir()))}{Path(name).suffix.lower()}"
    return path.rename(target)


def _join_shards(files: Mapping[str, Path], limits: Limits) -> ScratchFolder:
    """Return a folder with the rows of several Parquet files as one file of JSON lines."""
    scratch = ScratchFolder()
    parts = {f"part{number}": FileToRead(path, name) for number, (name, path) in enumerate(files.items())}
    run_reader(scratch, READER, parts, replace(limits, rows=limits.rows + 1), tables=[])
    with (scratch.path / f"{SHARDS}.jsonl").open("wb") as joined:
        for part in parts:
            joined.write((scratch.path / f"{part}.jsonl").read_bytes())
    return scratch
