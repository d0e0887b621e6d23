"""Studies of OASIS-LLM: recorded trials of two models, imported without model calls."""

import csv
import json
import shutil

import pytest
from django.core.management import call_command

from datasets_app.models import Dataset
from runs_app.models import Attempt, Experiment, Run, Trial
from runs_app.planning.plan import plan
from runs_app.planning.work import PlanError
from runs_app.run_control import retry_failed
from tests import factories
from tests.factories.recordings import find_recording
from tests.integration.results.test_published_differences import PUBLISHED
from tests.integration.study_import.import_command import export_rows, import_refused_study, import_study

pytestmark = pytest.mark.django_db

HEAD = "model,run_id,image_id,dimension,sample_idx,status,rating,attempts,finish_reason,cost_usd,error,raw_response"
ITEMS = "image_id,human_valence_mean,Category\nCat 1,6.1,Animal\nWall 2,3.9,Object\n"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def folder(tmp_path):
    lines = [
        HEAD,
        "small,exp__small,Cat 1,valence,0,done,6,1,stop,0.001,,six",
        "small,exp__small,Cat 1,valence,1,done,,1,length,,,six or",
        "small,exp__small,Wall 2,valence,0,failed,,3,,,Error: inappropriate content,",
        "small,exp__small,Wall 2,valence,1,pending,,0,,,,",
        "large,exp__large,Cat 1,valence,0,done,7,2,stop,0.002,,seven",
    ]
    study = tmp_path / "pilot study"
    study.mkdir()
    (study / "trials.csv").write_text("\n".join(lines) + "\n")
    (study / "image_set.csv").write_text(ITEMS)
    return study


@pytest.mark.slow
def test_recorded_trials_give_the_published_analysis(tmp_path):
    folder = tmp_path / "uniform40"
    folder.mkdir()
    for name in ("items", "trials-gemma", "trials-qwen"):
        shutil.copy(find_recording(f"uniform40-{name}.csv"), folder)
    experiment = import_study(folder)
    trials = Trial.objects.all()
    assert trials.count() == 3200
    refusals = trials.filter(status="failed", error_class="content_refused", attempts=3)
    assert refusals.count() == 40
    assert Attempt.objects.filter(trial__in=refusals).count() == 120
    recorded = [row for name in ("gemma", "qwen") for row in read_rows(folder / f"uniform40-trials-{name}.csv")]
    cost = sum(float(row["cost_usd"]) for row in recorded if row["cost_usd"])
    assert float(experiment.spent_usd) == pytest.approx(cost, abs=3200 * 5e-9), "each cost is rounded to 8 decimals"
    for (model, dimension), (items, difference, t, p, r) in PUBLISHED.items():
        out = tmp_path / "table.json"
        scope = ["--measure", dimension, "--format", "json", "--out", str(out)]
        call_command("analyse", "uniform40", "--table", "norm_differences", *scope)
        row = next(row for row in json.loads(out.read_text())["rows"] if model in row["condition"])
        assert row["items"] == items
        assert [row["difference"], row["t"], row["p"]] == pytest.approx([difference, t, p], abs=1e-6)
        call_command("analyse", "uniform40", "--table", "norm_agreement", *scope)
        row = next(row for row in json.loads(out.read_text())["rows"] if model in row["condition"])
        assert row["r"] == pytest.approx(r, abs=1e-6)


def read_rows(path):
    with path.open(newline="") as text:
        return list(csv.DictReader(text))


@pytest.mark.django_db(transaction=True)
def test_values_missing_from_the_source_are_unknown_and_not_zero(folder):
    import_study(folder)
    unread = Trial.objects.get(item__key="Cat 1", sample_idx=1)
    assert (unread.cost_usd, unread.input_tokens, unread.latency_ms) == (None, None, None)
    assert (unread.rating, unread.parse_error, unread.truncated) == (None, "no_rating_found", True)
    retried = Attempt.objects.filter(run__condition__model__name="oasis-llm-large").order_by("pk")
    assert [(one.outcome, one.cost_usd is None) for one in retried] == [("transient", True), ("ok", False)]
    call_command("reconcile")


@pytest.mark.django_db(transaction=True)
def test_importing_files_twice_creates_their_rows_once(folder, capsys):
    import_study(folder)
    before = list(Trial.objects.values_list("pk", flat=True))
    import_study(folder)
    assert list(Trial.objects.values_list("pk", flat=True)) == before
    assert "4 trials already existed" in capsys.readouterr().out
    with (folder / "trials.csv").open("a") as file:
        file.write("large,exp__large,Wall 2,valence,0,done,3,1,stop,0.002,,three\n")
    import_study(folder)
    assert Trial.objects.count() == len(before) + 1
    assert Run.objects.get(condition__model__name="oasis-llm-large").n_done == 2
    call_command("reconcile")


def test_additional_repetitions_and_later_successes_are_reported(folder, capsys):
    import_study(folder)
    text = (folder / "trials.csv").read_text().replace("Wall 2,valence,0,failed,,3", "Wall 2,valence,0,done,4,1")
    (folder / "trials.csv").write_text(text + "large,exp__large,Wall 2,valence,6,done,3,1,stop,0.002,,three\n")
    assert import_study(folder).samples == 7
    assert Trial.objects.get(item__key="Wall 2", sample_idx=0).status == "failed"
    assert "1 trials failed here and are done in the files: they stay failed" in capsys.readouterr().out


def test_two_answers_to_one_trial_are_refused_with_the_row_of_the_second(folder):
    row = "large,exp__large,Cat 1,valence,0,done,{rating},2,stop,0.002,,{answer}\n"
    other = folder / "trials-later.csv"
    other.write_text(f"{HEAD}\n" + row.format(rating=2, answer="two"))
    assert "trials.csv, row 6: an earlier row has the same trial with another outcome" in import_refused_study(folder)
    other.write_text(f"{HEAD}\n" + row.format(rating=7, answer="seven"))
    import_study(folder)
    assert Trial.objects.filter(run__condition__model__name="oasis-llm-large").count() == 1


def test_an_answer_that_differs_from_an_earlier_import_is_reported_and_skipped(folder, capsys):
    import_study(folder)
    text = (folder / "trials.csv").read_text()
    (folder / "trials.csv").write_text(text.replace("done,7,2,stop,0.002,,seven", "done,2,2,stop,0.002,,two"))
    import_study(folder)
    assert Trial.objects.get(run__condition__model__name="oasis-llm-large").answer == "seven"
    assert "1 trials have another outcome in the files than here, such as trials.csv, row 6" in capsys.readouterr().out


def test_imported_trials_are_never_called_or_retried(folder, owner):
    experiment = import_study(folder)
    assert set(experiment.runs.values_list("status", flat=True)) == {"done"}
    assert retry_failed(experiment.runs.all(), by=owner) == 0
    with pytest.raises(PlanError, match="cannot run here"):
        plan(experiment, by=owner)
    assert not experiment.language_models.filter(is_active=True).exists()


def test_a_dry_run_reads_everything_and_writes_nothing(folder, capsys):
    call_command("import_study", str(folder), "--dry-run")
    assert "4 trials, 1 of them failed" in capsys.readouterr().out
    assert not Experiment.objects.exists()
    assert not Dataset.objects.exists()


def test_images_keep_their_norms_and_categories(folder):
    dataset = import_study(folder, "--name", "my-study").dataset
    assert (dataset.slug, dataset.status) == ("my-study", "approved")
    cat = dataset.items.get(key="Cat 1")
    assert (cat.category, cat.norms.get().mean) == ("Animal", 6.1)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("rating", "9", "trials.csv, row 2: rating 9 is not on the scale from 1 to 7"),
        ("sample_idx", "first", "trials.csv, row 2: sample_idx cannot be read: 'first'"),
        ("status", "lost", "trials.csv, row 2: status is 'lost'"),
        ("cost_usd", "free", "trials.csv, row 2: cost_usd cannot be read: 'free'"),
    ],
)
def test_an_error_names_the_file_the_row_and_the_column(folder, column, value, message):
    rows = read_rows(folder / "trials.csv")
    rows[0][column] = value
    with (folder / "trials.csv").open("w", newline="") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert message in import_refused_study(folder)


def test_a_path_that_is_not_a_study_is_refused_with_the_known_formats(tmp_path):
    assert "no such file" in import_refused_study(tmp_path / "nothing")
    (tmp_path / "trials.csv").write_text("a,b\n1,2\n")
    for path in (tmp_path, tmp_path / "trials.csv"):
        assert "no known format" in import_refused_study(path)


def test_a_name_in_use_is_refused(folder):
    factories.make_dataset("pilot-study")
    assert "the dataset pilot-study exists" in import_refused_study(folder)


def test_the_provider_and_the_id_of_a_model_are_those_of_models_csv(folder):
    (folder / "models.csv").write_text(
        "model_friendly,provider,model_id,run_id\nsmall,openrouter,lab/small-2,exp__small\n"
    )
    experiment = import_study(folder)
    models = experiment.language_models.order_by("name").values_list("name", "model", "endpoint__provider")
    assert list(models) == [("oasis-llm-large", "large", ""), ("oasis-llm-small", "lab/small-2", "openrouter")]
    providers = {row["model"]: row["provider"] for row in export_rows(experiment, "trials")}
    assert providers == {"oasis-llm-small": "openrouter", "oasis-llm-large": None}, "an unknown one stays unknown"
