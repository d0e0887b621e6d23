"""Static files of the site, collected for its web server: with hashed names, and compressed.

`up` and `demo` collect them into the data folder whenever they differ from the last ones. Their names change with their
content, so browsers may keep them for ever.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from django.contrib.staticfiles.finders import get_finders
from whitenoise.storage import CompressedManifestStaticFilesStorage

VARIABLE = "EVALSITE_STATIC_ROOT"  # Only `up` sets it, for its web server: the folder of the collected files.


def collect_static_files(parent: Path) -> Path:
    """Collect the static files into a folder of `parent` named for their content, and return it.

    The folder appears when it is complete. Folders of other contents are deleted.
    """
    sources = {name: Path(storage.path(name)) for finder in get_finders() for name, storage in finder.list([])}
    digest = hashlib.sha256(f"{version('django')} {version('whitenoise')}".encode())
    for name in sorted(sources):
        digest.update(f"\0{name}\0".encode() + sources[name].read_bytes())
    folder = parent / digest.hexdigest()[:16]
    if not folder.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as scratch:
            _collect(sources, Path(scratch) / folder.name)
            (Path(scratch) / folder.name).rename(folder)
    for other in parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _collect(sources: dict[str, Path], folder: Path) -> None:
    storage = CompressedManifestStaticFilesStorage(location=folder)
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    for name, _, processed in storage.post_process({name: (storage, name) for name in sources}):
        if isinstance(processed, Exception):
            raise RuntimeError(f"the static file {name} cannot be collected") from processed
