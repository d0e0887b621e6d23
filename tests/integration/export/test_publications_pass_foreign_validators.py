"""A publication passes the validators of the formats' own authors.

Croissant's validator is in `test_publications.py`.
"""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

pytestmark = pytest.mark.django_db
SCHEMAS = Path(__file__).parent / "every_eval_ever"


def load_validator(name):
    """Return a package of the tests' requirements. Only outside CI, a missing one skips the test."""
    return importlib.import_module(name) if os.environ.get("CI") else pytest.importorskip(name)


def test_frictionless_reads_the_data_package_without_an_error(folder):
    frictionless = load_validator("frictionless")
    report = frictionless.validate(str(folder / "datapackage.json"))
    assert report.flatten(["title", "message"]) == []
    assert report.stats["tasks"] == 3
    rows = (folder / "data/trials.csv").read_text().replace(",done,", ",17,x", 1)
    (folder / "data/trials.csv").write_text(rows)
    assert not frictionless.validate(str(folder / "datapackage.json")).valid, "it finds a changed file"


def test_datacites_schema_accepts_the_metadata(folder):
    schema = load_validator("datacite.schema45")
    metadata = json.loads((folder / "datacite.json").read_text())
    assert schema.validate(metadata)
    metadata.pop("creators")
    assert not schema.validate(metadata)


def read_schema(name):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return jsonschema.validators.validator_for(schema)(schema)


def test_every_eval_evers_schema_accepts_each_record(folder):
    records = list((folder / "every_eval_ever/data/pilot").rglob("*.json"))
    assert len(records) == 2
    for path in records:
        assert [error.message for error in read_schema("eval").iter_errors(json.loads(path.read_text()))] == []


def test_every_eval_evers_schema_accepts_each_row_of_an_answer(folder):
    validator = read_schema("instance_level_eval")
    for path in (folder / "every_eval_ever/data/pilot").rglob("*.json"):
        record = json.loads(path.read_text())
        details = record["detailed_evaluation_results"]
        content = (folder / "every_eval_ever" / details["file_path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == details["checksum"]
        rows = [json.loads(line) for line in content.splitlines()]
        assert [error.message for row in rows for error in validator.iter_errors(row)] == []
        assert len(rows) == details["total_rows"] == 4
        (result,) = [
            one
            for one in record["evaluation_results"]
            if one["evaluation_result_id"] == rows[0]["evaluation_result_id"]
        ]
        assert result["metric_config"]["metric_unit"] == "proportion"
        mean = sum(row["evaluation"]["score"] for row in rows) / len(rows)
        assert mean == result["score_details"]["score"]
        assert sum(row["evaluation"]["is_correct"] for row in rows) == 2
        assert {row["evaluation_id"] for row in rows} == {record["evaluation_id"]}
        assert len({row["sample_id"] for row in rows}) == 4


@pytest.mark.skipif(not shutil.which("every_eval_ever"), reason="the package every-eval-ever needs Python 3.12")
def test_every_eval_evers_own_program_accepts_each_file_and_finds_a_changed_one(folder):
    root = folder / "every_eval_ever"
    records, rows = sorted(root.rglob("*.json")), sorted(root.rglob("*.jsonl"))
    assert [report["errors"] + report["warnings"] for report in run_validator(root, *records, *rows)] == [[]] * 4
    record = json.loads(records[0].read_text())
    record["detailed_evaluation_results"]["total_rows"] += 1
    records[0].write_text(json.dumps(record))
    (report,) = run_validator(root, records[0])
    assert report["errors"] + report["warnings"]


def run_validator(root, *files):
    names = [file.relative_to(root) for file in files]
    command = ["every_eval_ever", "validate", "--format", "json", *names]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return json.loads(process.stdout)
