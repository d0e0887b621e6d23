"""Untrusted images: decoded within limits and re-encoded."""

import gc
import io
import re
import struct
import unicodedata
import zlib

import pytest
from PIL import Image

from datasets_app.importing import BadImage, Limits, make_thumbnail, read_columns, read_image, read_items
from tests.factories.files import BLUE, RED, build_archive, build_picture, build_upload, list_messages


def decode(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_the_same_bytes_give_the_same_hash():
    data = build_picture()
    assert read_image(data) == read_image(data)
    assert read_image(data).sha256 != read_image(build_picture(BLUE)).sha256


def test_data_behind_or_inside_an_image_is_removed():
    exif = Image.Exif()
    exif[0x010E] = "<script>alert(1)</script>"
    data = build_picture(exif=exif, comment=b"<script>") + b"<html><script>alert(1)</script></html>"
    stored = read_image(data)
    assert b"script" not in stored.data
    assert decode(stored.data).getexif() == {}


def test_text_in_a_png_is_removed():
    from PIL.PngImagePlugin import PngInfo

    notes = PngInfo()
    notes.add_text("Comment", "<script>")
    stored = read_image(build_picture(form="PNG", pnginfo=notes) + b"<script>")
    assert stored.format == "png"
    assert b"script" not in stored.data


def test_an_image_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # Rotated by 90 degrees.
    assert (
        read_image(build_picture(size=(40, 30), exif=exif)).width,
        read_image(build_picture(size=(40, 30))).width,
    ) == (30, 40)


def test_png_stays_lossless_and_transparent():
    buffer = io.BytesIO()
    Image.new("RGBA", (8, 8), (10, 200, 30, 77)).save(buffer, "PNG")
    stored = read_image(buffer.getvalue())
    assert stored.format == "png"
    assert decode(stored.data).getpixel((3, 3)) == (10, 200, 30, 77)


def test_a_webp_becomes_a_jpeg_and_a_gif_its_first_frame():
    assert read_image(build_picture(form="WEBP")).format == "jpeg"
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    stored = read_image(buffer.getvalue())
    assert stored.format == "png"
    assert decode(stored.data).convert("RGB").getpixel((0, 0)) == RED


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "CMYK", "I;16", "RGBA"])
def test_every_mode_of_an_image_is_read(mode):
    form = "JPEG" if mode == "CMYK" else "PNG"
    buffer = io.BytesIO()
    Image.new(mode, (9, 7)).save(buffer, form)
    assert (read_image(buffer.getvalue()).width, read_image(buffer.getvalue()).height) == (9, 7)


def test_sixteen_bit_grey_keeps_its_shades():
    buffer = io.BytesIO()
    Image.new("I;16", (4, 4), 0x8000).save(buffer, "PNG")
    assert decode(read_image(buffer.getvalue()).data).getpixel((0, 0)) == 128


def test_long_images_are_scaled_down():
    stored = read_image(build_picture(size=(3000, 300)))
    assert (stored.width, stored.height) == (2048, 205)


def make_png_header(width: int, height: int) -> bytes:
    """Return a PNG with a false size and almost no data."""

    def make_chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + make_chunk(b"IHDR", header)
        + make_chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + make_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (make_png_header(12_000, 12_000), "pixels"),
        (make_png_header(100_000, 100_000), "pixels"),
        (make_png_header(20, 20), "no readable"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no readable"),
        (b"", "no readable"),
        (build_picture()[:200], "no readable"),
        (build_picture(form="BMP"), "no readable"),
    ],
)
def test_files_that_are_not_images_or_too_large_are_refused(data, why):
    with pytest.raises(BadImage, match=why):
        read_image(data)


def test_frames_count_as_pixels():
    frames = [Image.new("RGB", (100, 100), (n, 0, 0)) for n in range(20)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(BadImage, match="pixels"):
        read_image(buffer.getvalue(), Limits(image_pixels=100_000))


def test_a_file_that_is_too_large_is_not_decoded():
    with pytest.raises(BadImage, match="MiB"):
        read_image(build_picture(), Limits(image_bytes=100))


def test_a_thumbnail_is_a_small_jpeg_on_white():
    buffer = io.BytesIO()
    Image.new("RGBA", (1000, 500), (0, 0, 0, 0)).save(buffer, "PNG")
    small = decode(make_thumbnail(read_image(buffer.getvalue()).data))
    assert (small.format, small.size, small.getpixel((5, 5))) == ("JPEG", (320, 160), (255, 255, 255))


def test_a_table_finds_its_images_by_path_name_or_stem():
    images = build_archive({"Animal/Bark 5.jpg": build_picture(), "Object/Clock.PNG": build_picture(BLUE, form="PNG")})
    table = build_upload("id,image\na,Animal/Bark 5.jpg\nb,bark 5\nc,CLOCK.png\nd,Object\\Clock.PNG\n")
    reading = read_items(table, images=images)
    assert reading.errors == []
    assert [item.image.original_name for item in reading.items] == [
        "Bark 5.jpg",
        "Bark 5.jpg",
        "Clock.PNG",
        "Clock.PNG",
    ]
    assert reading.items[0].image.path.read_bytes()[:2] == b"\xff\xd8"


@pytest.mark.parametrize("stored", ["K\xe4se/\xc4pfel.jpg", "Ka\u0308se/A\u0308pfel.jpg"])
@pytest.mark.parametrize("has_flag", [True, False])
@pytest.mark.parametrize("column", ["\xc4pfel.jpg", "a\u0308pfel", "K\xe4se/A\u0308pfel.JPG"])
def test_umlauts_in_names_of_images_match_however_a_system_stores_them(stored, has_flag, column):
    content = build_archive({stored: build_picture()}).getvalue()
    if not has_flag:  # As the Finder's archives: names in UTF-8 that do not say so.
        content = re.sub(rb"(PK\x01\x02.{4}|PK\x03\x04.{2})(.)\x08", b"\\1\\2\x00", content, flags=re.DOTALL)
    reading = read_items(build_upload(f"id,image\na,{column}\n"), images=build_upload(content, "images.zip"))
    assert reading.errors == []
    assert unicodedata.normalize("NFC", reading.items[0].image.original_name) == "\xc4pfel.jpg"


def test_a_folder_works_like_an_archive(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").write_bytes(build_picture())
    (tmp_path / "outside.jpg").write_bytes(build_picture())
    (tmp_path / "pictures" / "link.jpg").symlink_to(tmp_path / "outside.jpg")
    reading = read_items(
        build_upload("id,image\nx,a.jpg\ny,link.jpg\nz,../outside.jpg\n"), images=tmp_path / "pictures"
    )
    assert [error.row for error in reading.errors] == [2, 3]


def test_an_image_that_is_missing_or_broken_is_an_error_of_its_row():
    images = build_archive(
        {"cat.jpg": build_picture(), "dog.jpg": b"no image", "x/one.jpg": build_picture(), "y/one.jpg": build_picture()}
    )
    reading = read_items(build_upload("id,image\na,caat.jpg\nb,dog.jpg\nc,one.jpg\n"), images=images)
    errors = list_messages(reading.errors)
    assert errors[0] == "row 1 (line 2), image: image 'caat.jpg' is not among the 4 images; the nearest is 'cat.jpg'"
    assert errors[1].startswith("row 2 (line 3), image: dog.jpg is no readable JPEG")
    assert "could be x/one.jpg or y/one.jpg" in errors[2]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("id,Bild\na,cat.jpg\nb,dog.jpg\n", "Bild"),
        ("nr,Bild\n1,1.jpg\n2,2.jpg\n", "Bild"),  # The numbers name the same files, without their suffix.
        ("file,Bild\nform-a.pdf,cat.jpg\nform-b.pdf,dog.jpg\n", "Bild"),
        ("image,thumbnail\ncat.jpg,dog.jpg\ndog.jpg,cat.jpg\n", "image"),
        ("id,label\na,cat\nb,dog\n", ""),  # The name of an answer is also the name of a file.
        ("id,Bild\n" + "a,cat.jpg\n" * 19 + "b,missing.jpg\n", "Bild"),
        ("id,Bild\na,cat.jpg\nb,missing.jpg\n", ""),
    ],
)
def test_the_column_that_names_images_is_found_by_its_values(table, column):
    images = build_archive({f"{name}.jpg": build_picture() for name in ("cat", "dog", "1", "2")})
    assert read_columns(build_upload(table), images=images)[2].get("image", "") == column
    assert read_items(build_upload(table), images=images).mapping.get("image", "") == column


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("Bild,Frage\ncat.jpg,x\ndog.jpg,y\n", ["cat.jpg", "dog.jpg"]),
        ("Bild,Frage\ncat.jpg,x\ncat.jpg,y\n", ["row-00001", "row-00002"]),
        ("Bild,id\ncat.jpg,x\ndog.jpg,y\n", ["x", "y"]),
    ],
)
def test_different_images_are_the_keys_of_a_table_without_keys(table, keys):
    images = build_archive({f"{name}.jpg": build_picture() for name in ("cat", "dog")})
    assert [item.key for item in read_items(build_upload(table), images=images).items] == keys


def test_a_column_of_images_found_by_its_values_loses_no_row():
    table = "id,Bild\n" + "".join(f"{number},{number}.jpg\n" for number in range(300))
    members = {"table.csv": table} | {f"{number}.jpg": build_picture() for number in range(300)}
    reading = read_items(build_archive(members))
    assert [item.image.original_name for item in reading.items] == [f"{number}.jpg" for number in range(300)]


def test_a_key_finds_its_image_if_no_column_names_one():
    reading = read_items(build_upload("id,label\ncat,x\n"), images=build_archive({"cat.jpg": build_picture()}))
    assert reading.items[0].image is not None


def test_an_error_says_that_the_key_was_read_as_the_name_of_the_image():
    reading = read_items(build_upload("id,datei\n1,cat.pdf\n"), images=build_archive({"cat.jpg": build_picture()}))
    (error,) = list_messages(reading.errors)
    assert error.endswith("; the key was read as its name, so map image to the column of file names")


def test_named_images_without_image_files_are_errors():
    assert "none were given" in str(read_items(build_upload("id,image\na,cat.jpg\n")).errors[0])


def test_parquet_may_contain_the_images():
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": ["a"], "image": [{"bytes": build_picture(), "path": "a.jpg"}]}), buffer)
    reading = read_items(build_upload(buffer.getvalue(), "items.parquet"))
    assert reading.errors == []
    assert reading.items[0].image.width == 40


def test_the_images_of_a_reading_are_deleted_with_it():
    reading = read_items(build_archive({"cat.jpg": build_picture()}))
    folder = reading.items[0].image.path.parent
    assert folder.is_dir()
    del reading
    gc.collect()
    assert not folder.exists()
