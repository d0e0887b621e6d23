"""A zip of images, with or without a table, and the archives that are refused."""

import io
import struct
import zipfile

import pytest

from datasets_app.importing import Limits, read_items
from tests.factories.files import BLUE, build_archive, build_picture, build_upload, list_messages


def test_images_alone_become_items_named_after_them():
    reading = read_items(
        build_archive(
            {"Animal/cat.jpg": build_picture(), "Object/cup.png": build_picture(BLUE, form="PNG"), "notes.txt": "-"}
        )
    )
    assert reading.errors == []
    assert [(item.key, item.category) for item in reading.items] == [("cat", "Animal"), ("cup", "Object")]


def test_a_table_inside_describes_the_images():
    table = "id,file,caption\none,img/cat.jpg,A cat\n"
    reading = read_items(
        build_archive({"img/cat.jpg": build_picture(), "items.csv": table, "__MACOSX/._items.csv": "x"})
    )
    assert reading.errors == []
    assert reading.items[0].metadata == {"caption": "A cat"}


def test_an_archive_with_two_tables_is_refused():
    assert "several tables" in str(read_items(build_archive({"a.csv": "id\n", "b.jsonl": "{}"})).errors[0])


def read_refused(file) -> str:
    reading = read_items(file)
    assert reading.items == []
    assert len(reading.errors) == 1
    return str(reading.errors[0])


@pytest.mark.parametrize("name", ["../evil.jpg", "a/../../evil.jpg", "/etc/evil.jpg", "C:/evil.jpg", "..\\evil.jpg"])
def test_names_that_lead_outside_are_refused(name):
    assert "outside itself" in read_refused(build_archive({"cat.jpg": build_picture(), name: build_picture()}))


def test_a_link_is_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        link = zipfile.ZipInfo("cat.jpg")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/passwd")
    assert "is a link" in read_refused(build_upload(buffer.getvalue(), "a.zip"))


def test_an_encrypted_member_is_refused():
    data = bytearray(build_archive({"cat.jpg": build_picture()}).getvalue())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    assert "encrypted" in read_refused(build_upload(bytes(data), "a.zip"))


def test_a_bomb_is_refused_before_it_is_unpacked():
    assert "200 times" in read_refused(build_archive({"cat.jpg": b"\0" * 5_000_000}))


def test_a_false_size_is_detected():
    data = bytearray(build_archive({"cat.jpg": build_picture() + b"\0" * 60_000}).getvalue())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 500)
    reading = read_items(build_upload(bytes(data), "a.zip"))
    assert not reading.ok
    assert reading.items == []


def test_a_file_that_is_not_an_archive_is_refused():
    assert "cannot be opened" in read_refused(build_upload(b"PK\x03\x04 nothing else", "a.zip"))
    assert (
        "cannot be opened"
        in list_messages(read_items(build_upload("id,image\na,b\n"), images=build_upload(b"none", "a.zip")).errors)[0]
    )


def test_too_many_members_and_too_much_inside_are_refused():
    three = {f"{n}.jpg": build_picture() for n in range(3)}
    assert "3 members" in str(read_items(build_archive(three), limits=Limits(zip_members=2)).errors[0])
    assert "unpacks to more" in str(read_items(build_archive(three), limits=Limits(unpacked_bytes=1000)).errors[0])
