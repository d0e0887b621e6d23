"""A temporary store of images between reading and saving. Each image is decoded once and named by its hash."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from datasets_app.importing.archives import ImageFinder, NotFound
from datasets_app.importing.image_reader import BadImage, read_image
from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.records import BufferedImage, FileError, ScratchFolder


class ImageBuffer:
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
