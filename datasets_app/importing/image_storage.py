"""Image files: each is written once under the name of its hash, together with a thumbnail."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from datasets_app.importing.image_reader import make_thumbnail
from datasets_app.importing.records import BufferedImage
from datasets_app.models import Asset
from evalsite.lib.ops.shared_files import AT_ONCE


def store_images(images: Iterable[BufferedImage], *, write_files: bool = True) -> None:
    """Write the files and rows of new images. Skip images that have a row already. A dry run writes no files.

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

    def write_file(asset: Asset) -> None:
        data = distinct[asset.sha256].path.read_bytes()
        asset.shared_file.store(data)
        asset.shared_thumbnail.store(make_thumbnail(data))

    if write_files:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(write_file, assets))
    Asset.objects.bulk_create(assets, ignore_conflicts=True, batch_size=1000)
