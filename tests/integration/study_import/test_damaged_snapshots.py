"""Damaged, truncated or forged snapshot files: refused with a message, and nothing is written."""

import io
import random
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from datasets_app.models import Dataset
from grading_app.publish.export.snapshot_check import SCHEMA, SnapshotFileError, verify
from runs_app.models import Experiment, Trial
from tests import factories
from tests.factories.imports import import_snapshot
from tests.integration.study_import.test_snapshot_import import read_parts, write_forged_copy

pytestmark = pytest.mark.django_db
RECORDED = Path(__file__).parent / "snapshots" / f"schema-{SCHEMA}.zip"


@pytest.fixture
def owner():
    return factories.make_user("importer", "Researcher")


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


def test_a_file_with_one_changed_byte_is_refused_or_has_the_same_content(owner, tmp_path):
    """Accept equal content, because some bytes of a zip, such as the times of its parts, are not content."""
    path, original, chance = tmp_path / "flipped.zip", RECORDED.read_bytes(), random.Random(7)
    n_refused = 0
    for _ in range(150):
        offset = chance.randrange(len(original))
        changed = bytearray(original)
        changed[offset] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            verdict = verify(path)
        except SnapshotFileError:
            n_refused += 1
        else:
            n_refused += bool(verdict.problems)
            assert verdict.problems or verdict.content == verify(RECORDED).content
    assert n_refused > 100


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(owner, tmp_path, share):
    path = tmp_path / "cut.zip"
    content = RECORDED.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SnapshotFileError, match=r"cut\.zip is not a complete snapshot"):
        import_snapshot(path, owner)
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("offset", "value"),
    [(6, 255), (8, 1), (10, 99), (10, 12), (10, 14)],
    ids=["version", "encrypted", "unknown method", "bzip2", "lzma"],
)
def test_a_part_that_zipfile_cannot_open_is_refused_with_a_message(owner, tmp_path, offset, value):
    """Change bytes at offsets within an entry of the central directory."""
    content = bytearray(RECORDED.read_bytes())
    content[content.index(b"PK\x01\x02") + offset] = value
    path = tmp_path / "odd.zip"
    path.write_bytes(content)
    with pytest.raises(SnapshotFileError):
        import_snapshot(path, owner)
    assert not Dataset.objects.exists()


def test_a_part_that_exceeds_its_declared_size_is_refused(owner, tmp_path):
    """Use a zip bomb that hides its size: the reader stops at the size in the directory."""
    content = bytearray(RECORDED.read_bytes())
    offset = content.index(b"PK\x01\x02") + 24
    content[offset : offset + 4] = (10).to_bytes(4, "little")
    path = tmp_path / "bomb.zip"
    path.write_bytes(content)
    with pytest.raises(SnapshotFileError):
        import_snapshot(path, owner)
    assert not Trial.objects.exists()


def test_a_newer_schema_asks_for_an_update_despite_a_different_card_format(owner, tmp_path):
    card = read_parts(RECORDED)["study-card.md"] + b"A line of a newer version.\n"
    newer = f'{{"schema": {SCHEMA + 1}}}'.encode()
    path = write_forged_copy(RECORDED, tmp_path, **{"study-card.md": card, "schema.json": newer})
    with pytest.raises(SnapshotFileError, match=f"has schema {SCHEMA + 1}, of a newer version; update this site"):
        import_snapshot(path, owner)
    output = io.StringIO()
    with pytest.raises(CommandError):
        call_command("verify_snapshot", str(path), stdout=output)
    assert f"schema.json: it has schema {SCHEMA + 1}, of a newer version; update this site" in output.getvalue()


def test_the_error_of_an_unreadable_file_says_what_to_do(owner, tmp_path):
    with pytest.raises(SnapshotFileError, match=r"^there is no file .*lost\.zip$"):
        import_snapshot(tmp_path / "lost.zip", owner)
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("photo.txt", b"")
    with pytest.raises(SnapshotFileError, match=r"^photos\.zip is a zip, but no snapshot or bundle of Evalsite"):
        import_snapshot(path, owner)
    path.write_bytes(RECORDED.read_bytes()[:5000])
    with pytest.raises(SnapshotFileError, match=r"^photos\.zip is not a complete snapshot: .*copy it again$"):
        import_snapshot(path, owner)


def test_a_zip_that_is_not_a_snapshot_is_refused(owner, tmp_path):
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("SHA256SUMS", b"\xff\x00 no checksums")
    with pytest.raises(SnapshotFileError, match="is not a complete snapshot"):
        import_snapshot(path, owner)
