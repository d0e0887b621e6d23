"""Files with a false type or size are refused with a message, and nothing is saved."""

import io
import struct
import zipfile
import zlib
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from datasets_app import forms, pending_uploads
from datasets_app.models import Asset, Dataset
from tests.factories.files import build_archive, build_picture, build_upload
from tests.integration.dataset_pages.test_uploading import build_choices, list_waiting_folders, send

HTML = "<!doctype html><html><body><script>alert(1)</script></body></html>"


@pytest.fixture(autouse=True)
def own_media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def member(as_):
    return as_("researcher")


@pytest.fixture(autouse=True)
def check_nothing_is_saved(db):
    yield
    assert not Dataset.objects.exists()
    assert not Asset.objects.exists()


def import_file(client, *args, **fields):
    """Return the last page of an import of this file, at any step."""
    response = send(client, *args, **fields)
    if response.status_code == 200:
        return response.content.decode()
    page = client.get(response.url)
    if "form" not in page.context:
        return page.content.decode()
    return client.post(response.url, build_choices(client, response.url), follow=True).content.decode()


def make_huge_png(side=12_000):
    """Return a black square with one bit per pixel: 144 megapixels in a few kilobytes."""

    def make_chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes((1 + side // 8) * side), 9)
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", header) + make_chunk(b"IDAT", rows) + make_chunk(b"IEND", b"")


def make_zip_bomb(megabytes=60):
    return build_archive({"big.csv": b"0" * megabytes * 2**20}, "bomb.zip")


@pytest.mark.slow
def test_a_page_renamed_to_csv_is_refused_and_shown_as_text(member):
    text = import_file(member, HTML, "page.csv")
    assert "the table has no rows below its header" in text
    assert "<script>alert" not in text


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_its_columns_are_shown(member):
    text = import_file(member, make_zip_bomb())
    assert "bomb.zip cannot be read" in text
    assert "times its size" in text


@pytest.mark.slow
def test_a_zip_bomb_of_images_is_refused(member):
    images = build_archive({"a.png": b"\x00" * 40 * 2**20}, "images.zip")
    assert "times its size" in import_file(member, "id,file\na,a.png\n", images=images)


def test_names_that_lead_out_of_an_archive_are_refused(member):
    assert "outside itself" in import_file(member, build_archive({"../../etc/cron.d/x.png": build_picture()}))


@pytest.mark.slow
def test_an_image_of_144_megapixels_is_refused(member):
    png = make_huge_png()
    assert len(png) < 100_000
    assert "has too many pixels" in import_file(member, build_archive({"big.png": png}))


@pytest.mark.slow
def test_a_page_behind_an_image_s_name_is_refused(member):
    assert "is no readable" in import_file(member, build_archive({"page.png": HTML}))


def test_a_damaged_spreadsheet_is_refused(member):
    sheet = build_archive({"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "<workbook/>"}, "book.xlsx")
    assert "the spreadsheet cannot be read" in import_file(member, sheet)


def test_images_that_are_not_a_zip_are_refused(member):
    response = send(member, images=build_upload(HTML, "images.zip"))
    assert response.context["form"].errors["images"] == ["This file is not a zip archive. Choose a .zip file."]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["items.parquet", "items.json", "items.jsonl", "items.csv", "items.zip"])
@pytest.mark.parametrize(
    "content", [b"PAR1 and then nothing", b"[1, 2", b"{", b"\x00\xff\xfe" * 50, b"PK\x03\x04rest", b"\x81"]
)
def test_broken_files_of_any_name_are_refused_with_a_sentence(member, name, content):
    text = import_file(member, content, name)
    assert "cannot be read" in text or "Nothing was saved" in text


def test_an_empty_file_is_refused(member):
    assert send(member, b"").context["form"].errors["file"] == ["The submitted file is empty."]


def test_a_table_that_is_too_large_is_refused_while_it_is_copied(member, settings, monkeypatch):
    monkeypatch.setitem(pending_uploads.MAX_BYTES, "items", 100)
    response = send(member)
    assert response.context["form"].errors["file"] == ["This file has more than 0 MiB."]
    assert list_waiting_folders(settings) == []


def test_a_file_that_hides_its_size_is_refused_by_the_form(member, settings):
    field = forms.UploadField("norms", ".csv")
    file: Any = build_upload("id,joy_mean\n", "norms.csv")
    file.size = pending_uploads.MAX_BYTES["norms"] + 1
    with pytest.raises(ValidationError, match="more than 128 MiB"):
        field.clean(file)


def test_a_nested_json_is_refused(member):
    assert "nested too deeply" in import_file(member, "[" * 100_000 + "]" * 100_000, "items.json")


@pytest.mark.slow
def test_archives_with_many_members_are_refused(member, monkeypatch):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for number in range(50_001):
            packed.writestr(f"{number}.png", b"")
    assert "at most 50,000 are read" in import_file(member, buffer.getvalue(), "many.zip")
