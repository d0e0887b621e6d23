"""Tables of untrusted files: restrictions on a database, and refused values."""

import json
from dataclasses import replace

import pyarrow
import pytest
from pyarrow import parquet

from datasets_app.importing.limits import LIMITS
from datasets_app.importing.records import FileError
from datasets_app.importing.table_dump import DUCKDB_CONFIG, dump, is_duckdb


@pytest.fixture
def database(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="the optional package duckdb is not installed")
    path = tmp_path / "study.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE runs AS SELECT 1 AS run_id, 'nan'::DOUBLE AS cost, now()::TIMESTAMP AS at_time"
        )
        connection.execute("CREATE TABLE other AS SELECT 1 AS a")
    return path


def dump_rows(path, tables=(), limits=LIMITS, part="rows"):
    out = path.parent / "out"
    out.mkdir(exist_ok=True)
    dump({"files": {part: [str(path), path.name]}, "tables": list(tables)}, out, limits)
    return {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in sorted(out.iterdir())}


def write_parquet(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_text('{secret}')",
        "ATTACH '{secret}.duckdb'",
        "COPY (SELECT 1) TO '{secret}.copy'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "CREATE TABLE more AS SELECT 1",
    ],
)
def test_a_database_cannot_access_other_files(database, tmp_path, statement):
    import duckdb

    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with duckdb.connect(str(database), read_only=True, config=DUCKDB_CONFIG) as opened:
        assert opened.execute("SELECT run_id FROM runs").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            opened.execute(statement.format(secret=secret))


def test_only_the_named_tables_of_a_database_are_written(database):
    assert is_duckdb(database)
    tables = dump_rows(database, ["runs", "trials"])
    assert list(tables) == ["runs"]
    assert (tables["runs"][0]["run_id"], tables["runs"][0]["cost"]) == (1, None)


def test_a_parquet_file_is_a_table_named_after_its_part(tmp_path):
    file = write_parquet(tmp_path / "items.parquet", key=["a", "b"], score=[1.5, float("nan")])
    assert not is_duckdb(file)
    assert dump_rows(file, part="items") == {"items": [{"key": "a", "score": 1.5}, {"key": "b", "score": None}]}


@pytest.mark.parametrize(
    ("columns", "limits", "message"),
    [
        ({"key": [b"bytes"]}, {}, "items.parquet, row 1: Object of type bytes is not JSON serializable"),
        ({"key": ["a", "x" * 11]}, {"line_chars": 10}, "items.parquet, row 2: key is longer than 10 characters"),
        ({"key": ["a", "b"]}, {"rows": 1}, "items.parquet: the table has 2 rows; at most 1 are read"),
        ({"key": ["a" * 50]}, {"unpacked_bytes": 20}, "items.parquet: more than 0 MiB"),
    ],
)
def test_a_value_that_a_line_cannot_represent_is_refused_with_its_row(tmp_path, columns, limits, message):
    file = write_parquet(tmp_path / "items.parquet", **columns)
    with pytest.raises(FileError, match=message):
        dump_rows(file, limits=replace(LIMITS, **limits))


def test_a_file_of_an_unsupported_kind_is_refused_by_name(tmp_path):
    file = tmp_path / "items.parquet"
    file.write_text("text")
    with pytest.raises(FileError, match="the file is not Parquet"):
        dump_rows(file)
