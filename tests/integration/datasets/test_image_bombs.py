"""Images that exhaust memory or time, or that are something else, too: refused, or reduced to their pixels."""

import io
import struct
import zlib

import pytest
from PIL import Image

from datasets_app.importing import BadImage, Limits, read_image, read_items
from tests.factories.files import RED, build_archive, build_picture, list_messages
from tests.integration.datasets.test_reading_images import make_png_header

LARGEST = 2**31 - 1
PAGE = b"<html><script>alert(1)</script></html>"


def make_gif(frames: int, screen: tuple[int, int] = (1, 1), frame: tuple[int, int] = (1, 1)) -> bytes:
    """Return a GIF whose frames have the same two bytes of data, whatever size they declare."""
    head = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    body = b"\x2c" + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x44\x01\x00"
    return head + body * frames + b";"


def make_webp(chunk: bytes, body: bytes) -> bytes:
    content = b"WEBP" + chunk + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(content)) + content


def make_large_webp(kind: str) -> bytes:
    """Return a WebP that declares 16,384 x 16,384 pixels."""
    if kind == "extended":
        return make_webp(b"VP8X", bytes(4) + (16_383).to_bytes(3, "little") * 2)
    return make_webp(b"VP8L", b"\x2f" + struct.pack("<I", 16_383 | 16_383 << 14))


def declare_jpeg_size(width: int, height: int) -> bytes:
    """Return a small JPEG whose frame header declares another size."""
    data = bytearray(build_picture())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def make_animated_png(frames: int) -> bytes:
    """Return a PNG of one pixel that declares this number of frames."""
    plain = make_png_header(1, 1)
    kind, body = b"acTL", struct.pack(">II", frames, 0)
    at = plain.index(b"IDAT") - 4
    return plain[:at] + struct.pack(">I", 8) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) + plain[at:]


def repeat_last_scan(times: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated. A scan has 100 bytes and passes over all pixels."""
    buffer = io.BytesIO()
    Image.new("L", (64, 64), 128).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    scan = data[data.rindex(b"\xff\xc4") : data.rindex(b"\xff\xd9")]
    return data[: data.rindex(b"\xff\xd9")] + scan * times + b"\xff\xd9"


DECLARED = {
    "png": make_png_header(LARGEST, LARGEST),
    "png, one row": make_png_header(LARGEST, 1),
    "jpeg": declare_jpeg_size(65_500, 65_500),
    "webp, extended": make_large_webp("extended"),
    "webp, lossless": make_large_webp("lossless"),
    "gif": make_gif(1, (65_535, 65_535)),
    "gif, one frame": make_gif(1, (1, 1), (65_535, 65_535)),
    "animated png": make_animated_png(LARGEST),
    "animated gif": make_gif(60, (1000, 1000)),
}


@pytest.mark.parametrize("kind", DECLARED)
def test_huge_declared_sizes_are_refused_without_decoding(kind, monkeypatch):
    data = DECLARED[kind]
    assert len(data) < 2000
    monkeypatch.setattr(Image.Image, "convert", lambda *args: pytest.fail("it was decoded"))
    with pytest.raises(BadImage, match=r"pixels|no readable"):
        read_image(data)


def test_a_jpeg_with_too_many_scans_is_refused():
    """Each scan of 98 bytes took 0.04 s at 49 megapixels: a file of 32 MiB would take hours."""
    assert read_image(repeat_last_scan(20)).width == 64
    with pytest.raises(BadImage, match=r"has 1,0\d\d scans; at most 100 are decoded"):
        read_image(repeat_last_scan(1000))


@pytest.mark.parametrize("frames", [2, 5000])
def test_only_the_first_frame_of_small_animations_is_kept(frames):
    stored = read_image(make_gif(frames))
    assert (stored.width, stored.height) == (1, 1)
    assert len(stored.data) < 200


def list_pictures_with_wrong_types():
    """Yield JPEGs with metadata in which one tag has another type than it should."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    exif[0x8769] = {0x9003: "2026:01:01 00:00:00", 0x829A: (1, 60)}
    exif[0x8825] = {1: "N", 2: (1.0, 2.0, 3.0)}
    data = build_picture(exif=exif)
    start = data.index(b"Exif\0\0") + 6
    order = "<" if data[start : start + 2] == b"II" else ">"
    end = data.index(b"\xff\xdb")
    for tag in (0x0112, 0x010E, 0x8769, 0x8825, 0x9003, 0x829A):
        at = data.index(struct.pack(f"{order}H", tag), start, end)
        for kind in range(14):
            yield data[: at + 2] + struct.pack(f"{order}H", kind) + data[at + 4 :]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow describes each fault.
def test_metadata_of_a_wrong_type_never_ends_an_import():
    answers = set()
    for data in list_pictures_with_wrong_types():
        try:
            answers.add(read_image(data).format)
        except BadImage as refusal:
            answers.add(str(refusal).partition(",")[0])
    assert "jpeg" in answers
    assert len(answers) >= 2


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("page behind a picture", build_picture() + PAGE),
        ("page in a comment", build_picture(comment=PAGE)),
        ("archive behind a picture", build_picture(form="PNG") + build_archive({"a.html": PAGE}).getvalue()),
        (
            "script that is a GIF",
            make_gif(1) + b"*/=1;alert(1)" + PAGE,
        ),
        ("document behind a picture", build_picture(form="GIF") + b"%PDF-1.7\n" + PAGE),
        ("page behind a WebP", build_picture(form="WEBP") + PAGE),
    ],
)
def test_a_polyglot_keeps_only_its_pixels(name, data):
    stored = read_image(data)
    for word in (b"script", b"alert", b"%PDF", b"PK\x03\x04"):
        assert word not in stored.data


SVG = b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"


@pytest.mark.parametrize(
    "data", [SVG, b"\xef\xbb\xbf" + SVG, b"\x89PNG\r\n\x1a\n" + SVG, b"GIF89a" + SVG, PAGE, b"%PDF-1.7", b"\0" * 5000]
)
def test_a_disguised_file_is_refused(data):
    with pytest.raises(BadImage, match=r"is no readable|pixels"):
        read_image(data)


def test_an_archive_of_bombs_names_each_of_them_and_saves_nothing():
    members: dict[str, bytes | str] = {f"{at}.png": data for at, data in enumerate(DECLARED.values())}
    members |= {"good.png": build_picture(RED), "scans.jpg": repeat_last_scan(1000), "svg.png": SVG}
    reading = read_items(build_archive(members))
    messages = "\n".join(list_messages(reading.errors))
    for name in members:
        assert (f"{name}" in messages) == (name != "good.png")
    assert not reading.ok


def test_the_limits_can_be_lowered():
    with pytest.raises(BadImage, match="at most 100 in all"):
        read_image(build_picture(), Limits(image_pixels=100))
