"""`manage.py export`: it writes a complete file or none."""

import csv

import pytest
from django.core.management import CommandError, call_command

from grading_app.publish.export import file_formats
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def experiment():
    created = factories.make_experiment(samples=2)
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda *cell: "4")
    return created


def test_the_command_writes_the_table(experiment, tmp_path):
    out = tmp_path / "trials.csv"
    call_command("export", "pilot", "--table", "trials", "--format", "csv", "--out", str(out))
    with out.open(newline="") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == ["4"] * 6
    assert [path.name for path in tmp_path.iterdir()] == ["trials.csv"]


def test_a_failed_export_keeps_the_old_file_and_leaves_no_partial_file(experiment, tmp_path, monkeypatch):
    out = tmp_path / "trials.csv"
    out.write_text("old")

    def fail_halfway(extract):
        yield b"half"
        raise ConnectionError("the database went away")

    monkeypatch.setitem(file_formats.FORMATS, "csv", fail_halfway)
    with pytest.raises(ConnectionError):
        call_command("export", "pilot", "--out", str(out))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"trials.csv": "old"}


def test_a_dash_writes_to_the_standard_output(experiment, capfdbinary):
    call_command("export", "pilot", "--table", "items", "--format", "jsonl", "--out", "-")
    assert capfdbinary.readouterr().out.count(b"\n") == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nobody", "--out", "-"], "no experiment nobody"),
        (["pilot", "--table", "colours", "--out", "-"], "trials, attempts, gradings, items, ledger"),
        (["pilot", "--format", "xlsx", "--out", "-"], "csv, jsonl, parquet"),
        (["pilot", "--out", "/nowhere/at/all.csv"], "/nowhere"),
        (["pilot", "--out", "-", "--filter", "colour=red"], "no filter colour"),
        (["pilot", "--out", "-", "--table", "items", "--filter", "status=done"], "it has none"),
        (["pilot", "--out", "-", "--filter", "done"], "NAME=VALUE"),
        (["pilot", "--out", "-", "--filter", "status=don"], "no value 'don'; it has pending, running, done"),
        (["pilot", "--out", "-", "--filter", "truncated=yes"], "no value 'yes'; it has true, false"),
        (["pilot", "--out", "-", "--filter", "condition=nobody"], "no condition 'nobody'; there are "),
        (["pilot", "--out", "-", "--filter", "contains=a\x00b"], "filter contains contains a NUL character"),
        (["pilot", "--out", "-", "--filter", "contains=\udcff"], "filter contains is not Unicode text at character 1"),
    ],
)
def test_bad_input_exits_with_2_and_lists_valid_names(experiment, arguments, named):
    with pytest.raises(CommandError) as caught:
        call_command("export", *arguments)
    assert caught.value.returncode == 2
    assert named in str(caught.value)


@pytest.mark.parametrize(("value", "rows"), [("True", 0), ("False", 6)])
def test_a_filter_for_yes_or_no_takes_the_words_of_python(experiment, capfdbinary, value, rows):
    call_command("export", "pilot", "--format", "jsonl", "--out", "-", "--filter", f"from_cache={value}")
    assert capfdbinary.readouterr().out.count(b"\n") == rows


def test_chunks_are_written_completely_and_in_order(tmp_path):
    pieces = [b"%d," % number * (number % 7) for number in range(500)]
    file_formats.write_export(iter(pieces), str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"".join(pieces)


@pytest.mark.parametrize("pieces", [[b"a", "no bytes", b"b"], [b"a", "no bytes"]])
def test_an_unwritable_chunk_ends_the_export_and_leaves_no_file(tmp_path, pieces):
    with pytest.raises(TypeError, match="bytes-like"):
        file_formats.write_export(iter(pieces), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("t.jsonl", b"{"),
        ("t.ndjson", b"{"),
        ("t", b"experiment,"),
        ("t.txt", b"experiment,"),
        ("t.parquet", b"PAR1"),
    ],
)
def test_the_suffix_of_the_path_names_the_format(experiment, tmp_path, name, starts):
    call_command("export", "pilot", "--out", str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(starts)


@pytest.mark.parametrize("command", ["export", "analyse", "figures", "report"])
def test_nothing_is_written_under_the_suffix_of_another_format(experiment, tmp_path, command):
    with pytest.raises(CommandError, match=r"--out: the name must end in one of \.\w+, \.") as caught:
        call_command(command, "pilot", "--out", str(tmp_path / "t.xlsx"))
    assert caught.value.returncode == 2
    assert not list(tmp_path.iterdir())
