"""A separate limited process reads files; if it fails, that is an error of the file."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from datasets_app.importing import LIMITS, limited_reader, read_items, read_norms
from datasets_app.importing.limited_reader import FileToRead, read_norm_table, read_table_columns, read_upload
from datasets_app.importing.limits import MIB
from datasets_app.importing.reader_output import ITEMS, load_readings
from datasets_app.importing.records import FileError, ScratchFolder
from evalsite.lib.ops.environment import PASSED_ON
from tests.factories.files import BLUE, RED, build_archive, build_picture, list_messages, stop_processes

pytestmark = pytest.mark.usefixtures("new_readers")
SAMPLES = Path(__file__).resolve().parents[3] / "samples"


@pytest.fixture
def write_file(tmp_path):
    def write(content, name="items.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return FileToRead(path, name)

    return write


def list_contents(reading):
    return [item.content() for item in reading.items]


@pytest.mark.slow
def test_a_reading_is_the_same_as_in_this_process():
    files = {
        "items": FileToRead(SAMPLES / "photographs.csv", "photographs.csv"),
        "images": FileToRead(SAMPLES / "photographs", "photographs"),
        "norms": FileToRead(SAMPLES / "norms.csv", "norms.csv"),
    }
    reading, norms = read_upload(files, {})
    read_here = read_items(SAMPLES / "photographs.csv", images=SAMPLES / "photographs")
    assert list_contents(reading) == list_contents(read_here)
    assert (reading.mapping, reading.columns) == (read_here.mapping, read_here.columns)
    assert (reading.source_name, reading.source_sha256) == (read_here.source_name, read_here.source_sha256)
    assert all(item.image.path.is_file() for item in reading.items)
    expected = read_norms(SAMPLES / "norms.csv", {item.key: item.category for item in read_here.items})
    assert (norms.norms, list_messages(norms.report.warnings)) == (
        expected.norms,
        list_messages(expected.report.warnings),
    )
    alone = read_norm_table(files["norms"], {item.key: item.category for item in read_here.items})
    assert alone.norms == expected.norms


def test_errors_and_columns_come_back_as_they_were_found(write_file):
    file = write_file("id,question,answer\na,One?,1\na,Two?,2\n")
    reading, norms = read_upload({"items": file}, {})
    assert list_messages(reading.errors) == ["row 2 (line 3), key: 'a' is the key of row 1 already"]
    assert reading.errors[0].line == 3
    assert (reading.items, norms.norms) == ([], [])
    table = read_table_columns(file)
    assert (table.columns, table.first_rows[0], table.brings_images) == (
        ["id", "question", "answer"],
        ["a", "One?", "1"],
        False,
    )
    assert read_table_columns(write_file(build_archive({"a.png": build_picture()}).getvalue(), "a.zip")).brings_images


@pytest.mark.slow
def test_a_file_that_needs_more_memory_than_the_limit_is_refused_by_name(write_file):
    """In this JSON array of 30 MB, every second character is an object."""
    rows = '[{"id": "a", "many": [' + ",".join(["{}"] * 10_000_000) + "]}]"
    file = write_file(rows[: 31 * MIB], "many.json")
    limits = replace(LIMITS, reader_memory_bytes=300 * MIB)
    reading, _ = read_upload({"items": file}, {}, limits)
    assert list_messages(reading.errors) == ["file: reading many.json takes more than 300 MiB of memory; split it"]
    with pytest.raises(FileError, match=r"reading many\.json takes more than 300 MiB of memory"):
        read_table_columns(file, limits)


def test_a_file_that_takes_longer_than_the_limit_is_refused_by_name(write_file, monkeypatch):
    stop_processes(monkeypatch)
    file = write_file("id,question\na,One?\n")
    reading, _ = read_upload({"items": file}, {}, replace(LIMITS, reader_seconds=0))
    assert list_messages(reading.errors) == ["file: reading items.csv takes longer than 0 s; split it"]


def test_a_killed_reader_is_reported_as_an_error(write_file, monkeypatch):
    started = []
    original = subprocess.Popen

    def start_and_kill(*args, **kwargs):
        process = original(*args, **kwargs)
        started.append(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_kill)
    reading, _ = read_upload({"items": write_file("id,question\na,One?\n")}, {})
    assert list_messages(reading.errors) == [
        "file: the process that read items.csv has died (SIGKILL); the file may be damaged"
    ]
    assert len(started) == 1


ABORT_AT_SHUTDOWN = """
import atexit, os

def task(request, out, limits):
    (out / "result").write_text("written")
    atexit.register(os.abort)
"""


def test_an_abort_at_the_shutdown_of_the_reader_loses_no_result(write_file, tmp_path, monkeypatch):
    """A thread of a native library can abort a process that has finished its work."""
    (tmp_path / "abort_at_shutdown.py").write_text(ABORT_AT_SHUTDOWN)
    monkeypatch.setitem(limited_reader.ENVIRONMENT, "PYTHONPATH", str(tmp_path))
    scratch = ScratchFolder()
    limited_reader.run_reader(scratch, "abort_at_shutdown:task", {"items": write_file("id\na\n")})
    assert (scratch.path / "result").read_text() == "written"


def test_the_reader_ends_if_its_caller_raises(write_file, monkeypatch):
    class Discarded(Exception):
        pass

    def watch(rows):
        raise Discarded

    processes = stop_processes(monkeypatch)
    monkeypatch.setattr(limited_reader, "LOOK_S", 0.01)
    with pytest.raises(Discarded):
        read_upload({"items": write_file("id,question\na,One?\n")}, {}, watch=watch)
    assert processes[0].returncode == -signal.SIGKILL


def test_the_reader_sees_no_key_and_no_database(write_file, monkeypatch):
    """A malicious file could take control of the process through a decoder."""
    recorded = []
    original = subprocess.Popen

    def record_process(*args, **kwargs):
        recorded.append(kwargs["env"])
        return original(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", record_process)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://somewhere")
    monkeypatch.setenv("EVALSITE_SECRET_KEY", "secret")
    reading, _ = read_upload({"items": write_file("id,question\na,One?\n")}, {})
    assert reading.ok
    assert set(recorded[0]) <= {*PASSED_ON, *limited_reader.ENVIRONMENT}


def test_the_reader_loads_no_django():
    code = "import sys, datasets_app.importing.reader_process, datasets_app.importing; print('django' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "False"


def test_an_image_that_is_not_what_its_name_says_is_refused(write_file):
    """The reader process is not trusted, because images are shared by their hash."""
    file = write_file(
        build_archive(
            {"red.png": build_picture(RED, form="PNG"), "blue.png": build_picture(BLUE, form="PNG")}
        ).getvalue(),
        "a.zip",
    )
    reading, _ = read_upload({"items": file}, {})
    scratch = reading.scratch
    assert len(load_readings(scratch)[0].items) == 2
    first, second = (item.image.path for item in reading.items)
    first.write_bytes(second.read_bytes())
    with pytest.raises(FileError, match="is not what the reader says it is"):
        load_readings(scratch)
    lines = (scratch.path / ITEMS).read_text().splitlines()
    item = json.loads(lines[0])
    item["image"][0] = "../../etc/passwd"
    (scratch.path / ITEMS).write_text(json.dumps(item) + "\n")
    with pytest.raises(FileError, match="an image that cannot be one"):
        load_readings(scratch)


@pytest.mark.slow
def test_a_parquet_bomb_is_stopped_by_the_count_before_the_memory_limit(write_file):
    from tests.integration.datasets.test_damaged_files import write_repeated_text

    file = write_file(write_repeated_text("x" * 190_000, 90_000), "bomb.parquet")
    assert file.path.stat().st_size < 1_000_000
    reading, _ = read_upload({"items": file}, {})
    (error,) = list_messages(reading.errors)
    assert "bomb.parquet has more than 512 MiB of data once decoded" in error
