"""Safe decoding of untrusted images: opened under limits, rotated upright, re-encoded, addressed by hash."""

from __future__ import annotations

import hashlib
import io
import struct
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.records import ImageRecord

KNOWN_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
LOSSLESS_SOURCES = frozenset({"PNG", "GIF"})
JPEG_QUALITY = 90
THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 320, 80
SCAN = b"\xff\xda"  # The marker before each scan of a JPEG. Within a scan, a byte 255 never precedes 218.
# Pillow raises the last ones for metadata of wrong types.
BROKEN = (
    UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError, OverflowError, MemoryError,
    TypeError, LookupError, ZeroDivisionError, AttributeError, struct.error,
)  # fmt: skip


class BadImage(Exception):
    """An image that is refused. The message gives the reason."""


def read_image(data: bytes, limits: Limits = LIMITS) -> ImageRecord:
    """Decode an image and encode it again. Raise BadImage if that fails.

    The result is the first frame of a JPEG, PNG, WebP or GIF, rotated upright by its EXIF orientation. Its longest side
    is at most `limits.image_side` pixels (2048); larger images are scaled down. PNG and GIF sources, and any image with
    transparency, become PNG; the rest become JPEG of quality 90. Metadata, colour profiles and trailing bytes are
    removed. The same bytes give the same record with the same version of Pillow.
    """
    if len(data) > limits.image_bytes:
        raise BadImage(f"has {len(data) / MIB:.0f} MiB; at most {limits.image_bytes // MIB} MiB are taken")
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(data), formats=KNOWN_FORMATS) as source:
                # Raise BadImage if the image has too many pixels. Use only the header, before any decoding.
                pixels = source.width * source.height
                if pixels > limits.image_pixels or pixels * getattr(source, "n_frames", 1) > limits.image_pixels:
                    raise BadImage(
                        f"is {source.width} x {source.height} pixels; at most {limits.image_pixels:,} in all are taken"
                    )
                if source.format == "JPEG" and data.count(SCAN) > limits.image_scans:
                    raise BadImage(f"has {data.count(SCAN):,} scans; at most {limits.image_scans} are decoded")
                source.seek(0)
                lossless = source.format in LOSSLESS_SOURCES or source.has_transparency_data
                image = _convert_mode(ImageOps.exif_transpose(source), lossless)
            image.thumbnail((limits.image_side, limits.image_side), Image.Resampling.LANCZOS)
            form = "PNG" if lossless else "JPEG"
            encoded = _encode(image, form, JPEG_QUALITY)
            return ImageRecord(hashlib.sha256(encoded).hexdigest(), encoded, form.lower(), image.width, image.height)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise BadImage("has too many pixels") from None
        except BROKEN as error:
            raise BadImage(f"is no readable {', '.join(KNOWN_FORMATS)}: {error or type(error).__name__}") from None


def make_thumbnail(data: bytes) -> bytes:
    """Return a JPEG of at most 320 pixels a side from an image of `read_image`. Transparency becomes white."""
    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
        image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        small = image.convert("RGBA" if image.has_transparency_data else "RGB")
    if small.mode == "RGBA":
        paper = Image.new("RGBA", small.size, "white")
        small = Image.alpha_composite(paper, small).convert("RGB")
    return _encode(small, "JPEG", THUMBNAIL_QUALITY)


def _convert_mode(image: Image.Image, lossless: bool) -> Image.Image:
    """Convert the image to 8-bit grey, colour, or colour with transparency."""
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value / 256).convert("L")  # 16-bit grey
    if image.mode in {"L", "1"} and not image.has_transparency_data:
        return image.convert("L")
    return image.convert("RGBA" if lossless and image.has_transparency_data else "RGB")


def _encode(image: Image.Image, form: str, quality: int) -> bytes:
    image.info = {}  # Pillow would write profiles, comments and text chunks from here into the file.
    buffer = io.BytesIO()
    image.save(buffer, form, **({"quality": quality, "optimize": True} if form == "JPEG" else {"optimize": True}))
    return buffer.getvalue()
