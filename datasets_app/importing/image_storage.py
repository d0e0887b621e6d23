"""Image files on disk: each is written once under the name of its hash, together with a thumbnail."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from datasets_app.importing.image_reader import make_thumbnail
from datasets_app.importing.records import BufferedImage
from datasets_app.models import Asset


def store_images(images: Iterable[BufferedImage]) -> None:
    """Write the files and rows of new images. Skip images that have a row already.

    Files are written before rows, so no row ever names a missing file. A failed transaction leaves files without rows.
    The next import of the same image uses them again.
    """
    distinct = {image.sha256: image for image in images}
    existing = set(Asset.objects.filter(pk__in=distinct).values_list("pk", flat=True))
    assets = [
        Asset(
            sha256=image.sha256,
            format=image.format,
            width=image.width,
            height=image.height,
            size=image.size,
            original_name=image.original_name,
        )
        for sha256, image in distinct.items()
        if sha256 not in existing
    ]
    for asset in assets:
        data = distinct[asset.sha256].path.read_bytes()
        if not asset.file.exists():
            _write(asset.file, data)
        if not asset.thumbnail_file.exists():
            _write(asset.thumbnail_file, make_thumbnail(data))
    Asset.objects.bulk_create(assets, ignore_conflicts=True, batch_size=1000)


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or nothing. The file is on disk before the database names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
