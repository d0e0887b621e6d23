"""A full disk ends every command that writes a file with a sentence and exit code 1, and leaves no part of the file."""

import errno
import gc
import io
import os
import sys

import pytest
from django.core.management import CommandError, call_command

from evalsite.lib.checksummed_zip import ArchiveWriter
from evalsite.lib.ops.failed_commands import explain_failure
from grading_app.grading.scoring import grade
from runs_app.models import Run
from tests.factories.gradings import make_answered_experiment
from tests.shared_rows import shared_rows


@shared_rows
def experiment():
    created = make_answered_experiment(items=3, models=("a", "b"), scorers=["exact_match"])
    Run.objects.update(status="done")
    grade(created, by="test")
    return created


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


def fail_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words",
    [
        ["export", "pilot"],
        ["snapshot", "pilot"],
        ["bundle", "design", "pilot"],
        ["report", "pilot", "--format", "html"],
        ["figures", "pilot", "--format", "json"],
        ["analyse", "pilot"],
    ],
    ids=lambda words: words[0],
)
def test_the_command_says_that_the_disk_is_full(experiment, tmp_path, monkeypatch, words):
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr("os.fsync", fail_full)
    with pytest.raises((CommandError, OSError)) as caught:
        call_command(*words, "--out", str(folder / "out"), stdout=io.StringIO(), stderr=io.StringIO())
    failure = caught.value if isinstance(caught.value, CommandError) else explain_failure(caught.value)
    assert str(failure).startswith("The disk is full. Free space, then run the command again.")
    assert failure.returncode == 1
    assert list(folder.iterdir()) == []


@pytest.mark.django_db
def test_a_folder_that_does_not_exist_is_invalid_input(experiment, tmp_path):
    for words in (["snapshot", "pilot"], ["bundle", "design", "pilot"], ["analyse", "pilot"]):
        with pytest.raises(CommandError, match="No such file or directory") as caught:
            call_command(*words, "--out", str(tmp_path / "none" / "out"), stdout=io.StringIO(), stderr=io.StringIO())
        assert caught.value.returncode == 2


def test_an_archive_that_could_not_be_written_prints_nothing_of_its_own(monkeypatch):
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    class FullFile(io.BytesIO):
        def write(self, data):
            return fail_full() if self.tell() > 100 else super().write(data)

    def write_archive():
        with FullFile() as file:
            ArchiveWriter(file).add("part", [os.urandom(100_000)])

    with pytest.raises(OSError, match="No space left") as caught:
        write_archive()
    del caught
    gc.collect()
    assert complaints == []
