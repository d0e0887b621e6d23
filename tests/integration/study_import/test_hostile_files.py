"""Files of studies that nobody trusts: archives, links, wrong types, huge values."""

import stat
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from grading_app.study_import import importers
from grading_app.study_import.importers import FORMATS, read_study
from runs_app.models import Experiment, Trial
from tests import factories

pytestmark = pytest.mark.django_db
LOGS = Path(__file__).parent / "logs"
TRIALS = "run_id,image_id,dimension,sample_idx,status,rating,attempts,raw_response\nrun,Cat 1,valence,0,done,6,1,six\n"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def refused(path):
    with pytest.raises(CommandError) as raised:
        call_command("import_study", str(path), "--name", "study")
    assert raised.value.returncode == 2
    assert not Experiment.objects.exists()
    return str(raised.value)


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_every_format_says_what_an_upload_must_hold():
    for one in FORMATS.values():
        assert one.content
        assert all(suffix.startswith(".") and suffix != ".zip" for suffix in one.suffixes)


def test_a_zip_of_a_folder_is_read_as_the_folder(tmp_path):
    path = zipped(tmp_path / "pilot.zip", {"results/trials.csv": TRIALS})
    call_command("import_study", str(path))
    assert Experiment.objects.get().slug == "results"
    assert Trial.objects.get().rating == 6
    call_command("import_study", str(path))
    assert Trial.objects.count() == 1


def test_unpacked_files_disappear_with_the_study(tmp_path):
    study = read_study(zipped(tmp_path / "pilot.zip", {"trials.csv": TRIALS}))
    folder = study.scratch[0].path
    assert len(list(study.trials())) == 1
    del study
    assert not folder.exists()


@pytest.mark.parametrize("name", ["../trials.csv", "/trials.csv", "a/../../trials.csv", "C:\\trials.csv"])
def test_an_archive_that_names_files_outside_itself_is_refused(tmp_path, name):
    inside = tmp_path / "uploads"
    inside.mkdir()
    assert "names a file outside itself" in refused(zipped(inside / "pilot.zip", {name: TRIALS}))
    assert not (tmp_path / "trials.csv").exists()


def test_a_link_in_an_archive_is_refused(tmp_path):
    link = zipfile.ZipInfo("trials.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "'trials.csv' in the archive is a link" in refused(zipped(tmp_path / "pilot.zip", {link: "/etc/passwd"}))


def test_a_link_out_of_a_folder_is_refused(tmp_path):
    folder = tmp_path / "pilot"
    folder.mkdir()
    (tmp_path / "secret.csv").write_text(TRIALS)
    (folder / "trials.csv").symlink_to(tmp_path / "secret.csv")
    assert "trials.csv: a link to a place outside the folder" in refused(folder)


def test_a_file_that_unpacks_to_many_times_its_size_is_refused(tmp_path):
    bomb = zipped(tmp_path / "pilot.zip", {"trials.csv": TRIALS + "0" * 20_000_000})
    assert "unpacks to more than 200 times its size" in refused(bomb)


def test_an_archive_that_declares_less_than_it_holds_is_refused(tmp_path):
    path = zipped(tmp_path / "pilot.zip", {"trials.csv": TRIALS})
    content = bytearray(path.read_bytes())
    size = len(TRIALS).to_bytes(4, "little")
    content[:] = content.replace(size, (10).to_bytes(4, "little"))
    path.write_bytes(content)
    assert "'trials.csv' in the archive cannot be unpacked" in refused(path)


def test_a_folder_with_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(importers, "LIMITS", type("Few", (), {"zip_members": 1}))
    for name in ("trials", "more"):
        (tmp_path / f"{name}.csv").write_text(TRIALS)
    assert "more than 1 files" in refused(tmp_path)
