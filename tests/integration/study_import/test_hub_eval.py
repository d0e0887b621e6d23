"""A benchmark file of the Hub: a draft with its dataset, without a call."""

import shutil
from pathlib import Path

import pytest
from django.core.management import call_command

from datasets_app.models import Dataset
from grading_app.study_import.importers import read_source
from runs_app.models import Experiment
from tests import factories
from tests.integration.study_import.import_command import import_refused_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "hub_eval"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def test_a_benchmark_becomes_a_draft_with_the_rows_of_its_split(capsys):
    factories.make_model("answerer")
    call_command("import_study", str(FOLDER))
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.status, experiment.samples) == ("capitals", "draft", 2)
    assert [scorer if isinstance(scorer, str) else scorer["scorer"] for scorer in experiment.scorers] == [
        "multiple_choice"
    ]
    items = experiment.dataset.items.order_by("position")
    assert list(items.values_list("key", "target")) == [("fr", "A"), ("jp", "B"), ("pe", "C")]
    assert (items[1].choices, items[1].metadata["region"]) == (["Osaka", "Tokyo", "Kyoto"], "Asia")
    system, user = experiment.prompts.get().messages
    assert system == {"role": "system", "content": "Answer with one letter."}
    assert "{{input}}" in user["content"]
    assert "{{choices}}" in user["content"]
    output = capsys.readouterr().out
    for text in ("1 other tasks are not taken: open", "The solver self_critique is not taken", "model_graded_qa"):
        assert text in output


def test_parquet_rows_are_read_too(tmp_path):
    import pyarrow
    from pyarrow import parquet

    shutil.copy(FOLDER / "eval.yaml", tmp_path)
    rows = [{"question": "The capital of Chad?", "answer": 1, "cities": ["Abéché", "N'Djamena"]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test-00000-of-00001.parquet")
    (item,) = read_source(tmp_path).items
    assert (item.key, item.target, item.choices) == ("row-00001", "B", ("Abéché", "N'Djamena"))


def test_a_benchmark_without_its_rows_needs_a_dataset_of_this_site(tmp_path, capsys):
    factories.make_model("answerer")
    shutil.copy(FOLDER / "eval.yaml", tmp_path)
    assert "there is no dataset capitals" in import_refused_study(tmp_path / "eval.yaml")
    factories.make_dataset("cities")
    call_command("import_study", str(tmp_path / "eval.yaml"), "--dataset", "cities@1")
    assert "The rows of the split test are not in the folder" in capsys.readouterr().out
    assert str(Experiment.objects.get().dataset) == "cities@1"


def test_an_existing_dataset_is_used_if_it_has_all_rows(capsys):
    factories.make_model("answerer")
    call_command("import_study", str(FOLDER), "--name", "first")
    Experiment.objects.all().delete()
    call_command("import_study", str(FOLDER), "--name", "second")
    assert "The dataset capitals@1 is here already and is used." in capsys.readouterr().out
    assert Dataset.objects.count() == 1
    factories.make_dataset("cities")
    Experiment.objects.all().delete()
    assert "the dataset cities@1 has no item 'fr'" in import_refused_study(FOLDER, "--dataset", "cities@1")


def test_a_row_without_a_column_is_refused_with_its_line(tmp_path):
    shutil.copy(FOLDER / "eval.yaml", tmp_path)
    (tmp_path / "test.jsonl").write_text('{"question": "?", "cities": []}\n')
    assert "test.jsonl, line 1: answer missing" in import_refused_study(tmp_path)
