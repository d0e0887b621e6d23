"""A publication describes its data in the formats of other places, whose own validators accept it."""

import csv
import io
import json
import re
import sys
import zipfile
from datetime import date

import mlcroissant
import pytest
import yaml
from absl import logging as absl_logging
from django.core.management import call_command

from grading_app.publish.export.columns import CODEBOOK
from grading_app.publish.export.export_tables import TABLES
from grading_app.publish.export.publication import UNSTATED, write_publication
from grading_app.publish.export.snapshots import SnapshotError
from runs_app.models import Run
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
# mlcroissant imports this handler. It would close the error output that pytest captured, when Django sets up logging.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__


@shared_rows
def study():
    experiment = make_answered_experiment("pilot", items=4, models=("small", "large"), owner=make_team().owner)
    make_gradings(experiment, "exact_match", lambda trial: trial.item.position % 2, kind="rule")
    experiment.scorers = [{"scorer": "exact_match"}]
    experiment.save()
    Run.objects.filter(experiment=experiment).update(status="done")
    return experiment


@pytest.fixture
def folder(study, tmp_path):
    out = io.BytesIO()
    write_publication(study, out, hub_id="lab/pilot")
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("table", CODEBOOK)
def test_the_codebook_describes_each_column(table):
    assert [column.name for column in TABLES[table].columns if column.name not in CODEBOOK[table]] == []
    assert len(set(CODEBOOK[table])) == len(TABLES[table].columns)


def test_croissant_is_valid_and_its_records_are_those_of_the_tables(folder):
    dataset = mlcroissant.Dataset(folder / "croissant.json")
    assert not dataset.metadata.issues.errors
    assert not dataset.metadata.issues.warnings
    records = list(dataset.records("trials"))
    rows = read_rows(folder / "data/trials.csv")
    assert len(records) == len(rows) == 8
    assert [record["trials/item_key"].decode() for record in records] == [row["item_key"] for row in rows]
    assert len(list(dataset.records("gradings"))) == 8
    content = json.loads((folder / "croissant.json").read_text())
    minimal = ["dataLimitations", "dataBiases", "personalSensitiveInformation", "dataUseCases", "dataSocialImpact"]
    assert all(content[f"rai:{name}"] for name in minimal)
    assert content["rai:dataBiases"] == UNSTATED, "the site invents nothing"


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


READERS = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": lambda text: {"true": True, "false": False}[text],
    "datetime": lambda text: date.fromisoformat(text[:10]),
}


def test_the_data_package_describes_each_column_and_its_types_read_the_data(folder):
    package = json.loads((folder / "datapackage.json").read_text())
    for resource in package["resources"]:
        data = (folder / resource["path"]).read_bytes()
        assert len(data) == resource["bytes"]
        rows = read_rows(folder / resource["path"])
        fields = {field["name"]: field for field in resource["schema"]["fields"]}
        assert list(rows[0]) == list(fields)
        assert all(field["description"] for field in fields.values())
        for row in rows:
            for name, text in row.items():
                if text:
                    READERS[fields[name]["type"]](text)


def test_citation_and_doi_metadata_name_the_study(folder, study):
    citation = yaml.safe_load((folder / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "dataset")
    assert citation["authors"] == [{"name": "owner"}]
    doi = json.loads((folder / "datacite.json").read_text())
    required = ("creators", "titles", "publisher", "publicationYear", "types")
    assert all(doi[name] for name in required)


def test_the_hub_gets_a_card_a_benchmark_and_results(folder, study):
    card = (folder / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    assert {config["config_name"] for config in metadata["configs"]} == set(CODEBOOK)
    assert all((folder / config["data_files"][0]["path"]).exists() for config in metadata["configs"])
    benchmark = yaml.safe_load((folder / "eval.yaml").read_text())
    (task,) = benchmark["tasks"]
    assert task["scorers"] == [{"name": "exact"}]
    assert task["field_spec"]["input"] in CODEBOOK["items"]
    files = list((folder / "eval_results").glob("*/.eval_results/*.yaml"))
    assert sorted(file.parent.parent.name for file in files) == ["large", "small"]
    for file in files:
        (entry,) = yaml.safe_load(file.read_text())
        assert entry["dataset"] == {"id": "lab/pilot", "task_id": task["id"]}
        assert entry["value"] == 50.0


def test_every_eval_ever_gets_each_condition_with_its_interval(folder):
    records = [json.loads(file.read_text()) for file in (folder / "every_eval_ever/data/pilot").rglob("*.json")]
    assert {record["model_info"]["name"] for record in records} == {"small", "large"}
    for record in records:
        (result,) = record["evaluation_results"]
        details = result["score_details"]
        assert details["score"] == 0.5
        assert details["uncertainty"]["num_samples"] == 4
        bounds = details["uncertainty"]["confidence_interval"]
        assert bounds["lower"] < 0.5 < bounds["upper"]
        assert all(isinstance(record[name], str) for name in ("schema_version", "evaluation_id", "retrieved_timestamp"))


def test_no_file_names_a_host_that_its_format_does_not_prescribe(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    hosts = {
        host
        for path in files
        for host in re.findall(r"[a-z]+://([\w.-]+)", path.read_bytes().decode("utf-8", "replace"))
    }
    assert hosts == {"datacite.org", "mlcommons.org", "purl.org", "schema.org"}
    assert len(files) > 15


def test_a_publication_waits_for_the_end_of_runs(study):
    Run.objects.filter(experiment=study).update(status="running")
    with pytest.raises(SnapshotError):
        write_publication(study, io.BytesIO())


def test_the_page_and_the_command_write_it(study, tmp_path, client):
    call_command("bundle", "publication", "pilot", "--out", str(tmp_path / "pilot.zip"), "--hub-id", "lab/pilot")
    assert "croissant.json" in zipfile.ZipFile(tmp_path / "pilot.zip").namelist()
    client.force_login(study.owner)
    assert "/experiments/pilot/bundles/publication.zip" in client.get("/experiments/pilot/files/").content.decode()


def test_a_study_without_scores_can_be_published():
    experiment = factories.make_experiment("empty", owner=make_team().owner)
    assert write_publication(experiment, io.BytesIO())
