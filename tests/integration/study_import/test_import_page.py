"""Study import on the page: a dry run by a worker, its report, then the import, without lost entries or files."""

import json
import shutil
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils.module_loading import import_string

from datasets_app import pending_uploads
from datasets_app.importing import limited_reader
from datasets_app.importing.limited_reader import FileToRead
from datasets_app.importing.limits import LIMITS
from datasets_app.models import BackgroundJob, Dataset
from evalsite.lib import permissions
from grading_app.publish.export.snapshots import make_snapshot
from grading_app.study_import.import_jobs import TASK
from grading_app.study_import.importers import FORMATS, read_source
from grading_app.study_import.study import StudyError
from grading_app.study_import.study_files import Study, encode_value
from grading_app.study_import.upload_reader import read_study_upload
from runs_app.models import Experiment, Trial
from runs_app.taskqueue.task_payloads import FUNCTIONS
from tests import factories
from tests.factories.files import build_archive, build_upload
from tests.integration.dataset_pages.conftest import run_task_now
from tests.page_text import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
HEAD = "model,run_id,image_id,dimension,sample_idx,status,rating,attempts,finish_reason,cost_usd,error,raw_response\n"
ROWS = "small,one,Cat 1,valence,0,done,6,1,stop,0.001,,six\nsmall,one,Wall 2,valence,0,failed,,3,,,Error: lost,\n"
SOURCES = Path(__file__).parent
ITEMS = "image_id,human_valence_mean,Category\nCat 1,6.1,Animal\nWall 2,3.9,Object\n"


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    """Run each task as soon as it is enqueued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def researcher():
    return factories.make_user("researcher", permissions.RESEARCHER)


@pytest.fixture
def member(client, researcher):
    client.force_login(researcher)
    return client


def send(client, *files, upload_token="", **entries):
    """Post the files and entries of the first step and return the response."""
    content = {"study": list(files)} if files else {}
    return client.post(reverse("study_import_new"), {**content, **entries, "upload": upload_token})


def build_trials_file(text=HEAD + ROWS):
    return build_upload(text, "trials.csv")


def get_token(address):
    return address.rstrip("/").rpartition("/")[2]


def test_a_study_is_checked_and_imported_and_its_results_page_opens(member, researcher):
    address = send(member, build_trials_file(), build_upload(ITEMS, "images.csv"), slug="pilot").url
    page = page_text(member.get(address))
    assert "This study can be imported." in page
    assert "<dt>Trials</dt><dd>2</dd>" in page
    assert "<dt>Failed trials</dt><dd>1</dd>" in page
    assert "The images are not in the files" in page
    assert not Experiment.objects.exists()
    assert not Dataset.objects.exists()
    assert member.post(address, {"import": "1"}).url == address
    results = member.get(address)
    experiment = Experiment.objects.get()
    assert results.url == reverse("experiment_results", args=["pilot"])
    assert (experiment.owner, experiment.imported_from, experiment.dataset.slug) == (researcher, "oasis-llm", "pilot")
    assert experiment.dataset.items.get(key="Cat 1").norms.get().mean == 6.1
    assert member.get(results.url).status_code == 200


def test_an_error_names_its_row_and_keeps_the_files_for_the_next_attempt(member):
    address = send(member, build_trials_file(HEAD + ROWS.replace("done,6", "done,9")), slug="pilot").url
    page = page_text(member.get(address))
    assert "These files cannot be imported." in page
    assert "trials.csv, row 2: rating 9 is not on the scale from 1 to 7" in page
    assert "Import study" not in page
    member.post(address, {"import": "1"})
    assert not Experiment.objects.exists()
    form = page_text(member.get(reverse("study_import_new"), {"upload": get_token(address)}))
    assert "Already uploaded: <strong>trials.csv</strong>" in form
    assert 'value="pilot"' in form


@pytest.mark.slow
def test_a_name_in_use_can_be_changed_without_a_new_upload(member):
    factories.make_dataset("taken")
    address = send(member, build_trials_file(), slug="taken").url
    assert "the dataset taken exists: choose another name" in page_text(member.get(address))
    second_address = send(member, upload_token=get_token(address), slug="free").url
    assert second_address == address
    assert "This study can be imported." in page_text(member.get(address))
    member.post(address, {"import": "1"})
    assert Experiment.objects.get().slug == "free"


def test_an_invalid_entry_keeps_the_files_and_the_other_entries(member):
    page = page_text(send(member, build_trials_file(), slug="pilot", format="unknown", upload_token=""))
    assert "Already uploaded: <strong>trials.csv</strong>" in page
    assert 'value="pilot"' in page


@pytest.mark.slow
def test_new_files_replace_all_earlier_files(member):
    first_address = send(member, build_trials_file(), build_upload(ITEMS, "images.csv")).url
    second_address = send(member, build_trials_file(), upload_token=get_token(first_address), slug="pilot").url
    assert member.get(first_address).status_code == 404
    assert "2 images have no human means." in page_text(member.get(second_address))


@pytest.mark.slow
def test_answers_can_be_imported_for_an_existing_dataset(member):
    dataset = factories.make_dataset("images", [{"key": "Cat 1"}, {"key": "Wall 2"}], approved=True)
    address = send(member, build_trials_file(), slug="pilot", dataset=dataset.pk).url
    assert f"Texts, categories and norms are those of {dataset}" in page_text(member.get(address))
    member.post(address, {"import": "1"})
    assert Experiment.objects.get().dataset == dataset
    assert Dataset.objects.count() == 1


@pytest.mark.slow
def test_answers_to_items_missing_from_the_dataset_are_refused(member):
    dataset = factories.make_dataset("images", [{"key": "Cat 1"}], approved=True)
    address = send(member, build_trials_file(), slug="pilot", dataset=dataset.pk).url
    assert f"the dataset {dataset} has no item &#x27;Wall 2&#x27;" in page_text(member.get(address))


@pytest.mark.slow
def test_importing_the_same_files_again_adds_nothing(member):
    for _ in range(2):
        address = send(member, build_trials_file(), slug="pilot").url
        member.post(address, {"import": "1"})
    assert Trial.objects.count() == 2
    address = send(member, build_trials_file(), slug="pilot").url
    report = page_text(member.get(address))
    assert "<dt>Trials that are here already</dt><dd>2</dd>" in report
    assert "All trials of these files are here already: the import adds no trial." in report


def test_every_format_of_the_registry_is_offered(member):
    page = page_text(member.get(reverse("study_import_new")))
    for one in FORMATS.values():
        assert f'<option value="{one.name}">{one.label}</option>' in page
    assert reverse("study_import_new") in page_text(member.get(reverse("experiment_list")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logs/sums.eval", "itemeval.zip"])
def test_the_limited_process_returns_exactly_what_the_format_reads(name, tmp_path):
    path = SOURCES / name
    if name.endswith(".zip"):
        path = Path(shutil.make_archive(str(tmp_path / "itemeval"), "zip", SOURCES / "itemeval"))
    from_command, from_upload = read_source(path), read_study_upload({"study-1": FileToRead(path, path.name)}, "")
    assert list(from_upload.trials()) == list(from_command.trials())
    for one in fields(Study):
        if one.name not in ("scratch", "folders"):
            parts = (getattr(study, one.name) for study in (from_upload, from_command))
            uploaded, read = (json.loads(json.dumps(part, default=encode_value)) for part in parts)
            assert uploaded == read, one.name


@pytest.mark.slow
def test_a_run_config_becomes_a_draft_on_the_selected_dataset(member, researcher):
    dataset = factories.make_dataset("images")
    factories.make_endpoint("openrouter")
    config = (
        "name: gemma pilot\nprovider: openrouter\nmodel: openrouter/google/gemma\nimage_set: pilot_30\nmax_tokens: 99\n"
    )
    page = page_text(member.get(send(member, build_upload(config, "run.yaml"), dataset=dataset.pk).url))
    assert "These files cannot be imported." in page
    assert "you may not" in page
    researcher.groups.add(Group.objects.get(name=permissions.OPERATOR))
    User.objects.filter(pk=researcher.pk).update(is_superuser=True)
    address = send(member, build_upload(config, "run.yaml"), dataset=dataset.pk).url
    assert "Design of OASIS-LLM" in page_text(member.get(address))
    assert not Experiment.objects.exists()
    member.post(address, {"import": "1"})
    experiment = Experiment.objects.get()
    assert (experiment.status, experiment.dataset, experiment.owner) == ("draft", dataset, researcher)
    assert member.get(address).url == experiment.get_absolute_url()


@pytest.mark.slow
def test_a_zip_of_a_configuration_with_its_prompt_becomes_a_draft(member, researcher):
    User.objects.filter(pk=researcher.pk).update(is_superuser=True)
    dataset = factories.make_dataset("sums")
    factories.make_endpoint("mockllm")
    names = ("config.yaml", "prompts/solver/short.md")
    files = {f"project/{name}": (SOURCES / "itemeval" / name).read_bytes() for name in names}
    address = send(member, build_archive(files, "project.zip"), dataset=dataset.pk).url
    report = page_text(member.get(address))
    assert "Design of itemeval" in report
    assert "The tool gives judges no scale" in report
    member.post(address, {"import": "1"})
    experiment = Experiment.objects.get()
    assert (experiment.status, experiment.dataset, experiment.prompts.count(), experiment.scorers) == (
        "draft",
        dataset,
        2,
        ["numeric"],
    )


@pytest.mark.slow
def test_a_zip_of_a_folder_is_one_study(member):
    packed = build_archive({"my study/trials.csv": (HEAD + ROWS).encode(), "my study/images.csv": ITEMS.encode()})
    packed.name = "my study.zip"
    address = send(member, packed).url
    assert "Import my-study" in page_text(member.get(address))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../../trials.csv": b"a"}, "names a file outside itself"),
        ({"a.csv": b"0" * 40_000_000}, "unpacks to more than 200 times its size"),
        (
            {"readme.txt": b"hello"},
            "the format is not recognised; choose it under Format, or import a table of items as a dataset",
        ),
    ],
)
def test_a_hostile_or_unknown_archive_is_refused_with_a_message(member, files, message):
    packed = build_archive(files)
    packed.name = "study.zip"
    page = page_text(member.get(send(member, packed).url))
    assert message in page
    assert "evalsite-import" not in page


def test_a_text_that_the_database_refuses_is_reported_as_a_problem(member):
    address = send(member, build_trials_file(HEAD + ROWS.replace("six", "s\0x")), slug="pilot").url
    assert "NUL" in page_text(member.get(address))
    assert not Experiment.objects.exists()


def test_an_upload_above_the_size_limit_is_refused(member, monkeypatch):
    monkeypatch.setattr("grading_app.study_import.forms.get_most_bytes", lambda part: 10)
    assert "Import them with `manage.py import_study`" in page_text(send(member, build_trials_file()))
    assert not list(pending_uploads._get_uploads_folder().glob("*/*"))


def test_the_web_process_never_reads_a_study(member, monkeypatch):
    queued = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda function, *args, **how: queued.append((function, args)))
    monkeypatch.setattr(limited_reader, "_run_task", None)
    page = page_text(member.get(send(member, build_trials_file()).url))
    assert "Waiting for a worker" in page
    assert 'hx-trigger="every 1s"' in page
    assert [function for function, _ in queued] == [TASK]
    assert TASK in FUNCTIONS
    assert import_string(TASK)


@pytest.mark.slow
def test_uploads_of_other_users_and_dataset_uploads_are_not_found(member, client):
    address = send(member, build_trials_file(), slug="pilot").url
    assert member.get(reverse("dataset_import", args=[get_token(address)])).status_code == 404
    client.force_login(factories.make_user("other", permissions.RESEARCHER))
    assert client.get(address).status_code == 404
    assert client.post(address, {"import": "1"}).status_code == 404
    assert not Experiment.objects.exists()


@pytest.mark.parametrize("role", [permissions.VIEWER, permissions.RATER])
def test_users_who_cannot_create_experiments_cannot_import_studies(client, role):
    client.force_login(factories.make_user("reader", role))
    assert client.get(reverse("study_import_new")).status_code == 404
    assert send(client, build_trials_file()).status_code == 404


@pytest.mark.slow
def test_a_discarded_upload_is_deleted(member):
    address = send(member, build_trials_file()).url
    assert member.post(address, {"discard": "1"}).url == reverse("study_import_new")
    assert member.get(address).status_code == 404


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path):
    """Return the snapshot file of an experiment that still exists on this site."""
    dataset = factories.make_dataset("sums", [{"key": "a"}], approved=False)
    dataset.approve(by="test", reason="ready")
    experiment = factories.make_experiment("first", dataset=dataset)
    shutil.copy(make_snapshot(experiment, by="test").path, tmp_path / "sent.zip")
    return tmp_path / "sent.zip"


def send_snapshot(client, path, **entries):
    return send(client, build_upload(path.read_bytes(), path.name), **entries).url


@pytest.mark.slow
def test_a_snapshot_import_reports_names_in_use_and_overwrites_nothing(member, snapshot):
    address = send_snapshot(member, snapshot, slug="mine")
    page = page_text(member.get(address))
    assert "Evalsite snapshot" in page
    assert "<dt>experiment first</dt><dd>first-2</dd>" in page
    assert "those that you entered are not used" in page
    member.post(address, {"import": "1"})
    assert member.get(address).url == reverse("experiment_results", args=["first-2"])
    assert set(Experiment.objects.values_list("slug", flat=True)) == {"first", "first-2"}


@pytest.mark.slow
def test_a_changed_or_truncated_snapshot_is_refused(member, snapshot, tmp_path):
    with zipfile.ZipFile(snapshot) as original, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        for name in original.namelist():
            forged.writestr(
                name, original.read(name).replace(b"first", b"other") if name == "names.json" else original.read(name)
            )
    page = page_text(member.get(send_snapshot(member, tmp_path / "forged.zip")))
    assert "forged.zip cannot be imported: names.json: its content does not match its checksum" in page
    snapshot.write_bytes(snapshot.read_bytes()[:-1000])
    page = page_text(member.get(send_snapshot(member, snapshot, format="snapshot")))
    assert "sent.zip is no snapshot or bundle of Evalsite" in page
    assert Experiment.objects.count() == 1


def test_a_snapshot_too_large_for_the_page_must_be_imported_by_command(snapshot):
    with pytest.raises(StudyError, match=r"unpacks to more than 0 MiB; import it with `manage\.py import_snapshot`"):
        read_study_upload({"study-1": FileToRead(snapshot, "sent.zip")}, "", replace(LIMITS, unpacked_bytes=2000))


@pytest.mark.slow
def test_a_worker_killed_after_the_import_leaves_one_study(member, snapshot, researcher):
    address = send_snapshot(member, snapshot)
    member.post(address, {"import": "1"})
    waiting = pending_uploads.find_upload(researcher.pk, get_token(address), TASK)
    shutil.copy(snapshot, waiting.folder / "study-1")
    BackgroundJob.objects.filter(pk=waiting.job.pk).update(ended_at=None, result={})
    assert waiting.job.is_lost
    member.post(address, {"again": "1"})
    assert Experiment.objects.count() == 2
    assert member.get(address).url == reverse("experiment_results", args=["first-2"])


def test_the_worker_of_a_deleted_upload_does_nothing(member):
    address = send(member, build_trials_file()).url
    key = BackgroundJob.objects.get().pk
    member.post(address, {"discard": "1"})
    assert import_string(TASK)(key) == "discarded"


@pytest.mark.parametrize("folder", ["lm_eval", "every_eval_ever", "openai_evals"])
def test_files_of_other_harnesses_are_imported_and_their_pages_open(member, folder):
    files = sorted(file for file in (SOURCES / folder).glob("*.json*") if file.is_file())
    address = send(member, *(build_upload(file.read_bytes(), file.name) for file in files), slug="harness").url
    page = page_text(member.get(address))
    assert "This study can be imported." in page
    assert not Experiment.objects.exists()
    member.post(address, {"import": "1"})
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.imported_from) == ("harness", folder.replace("_", "-"))
    for name in ("experiment_detail", "experiment_results"):
        assert member.get(reverse(name, args=["harness"])).status_code == 200
    trial = experiment.runs.first().trials.first()
    assert member.get(trial.get_absolute_url()).status_code == 200


def test_a_design_with_items_becomes_a_draft_with_its_dataset(member):
    endpoint = factories.make_endpoint("openai")
    for name, model in (("small", "small-model"), ("large-model", "large-model"), ("lost-model", "lost-model")):
        factories.make_model(name, model=model, endpoint=endpoint)
    config = build_upload((SOURCES / "promptfoo" / "promptfooconfig.yaml").read_bytes(), "promptfooconfig.yaml")
    address = send(member, config, slug="drafted").url
    page = page_text(member.get(address))
    assert "<dt>Items</dt><dd>3</dd>" in page
    assert "Assertions are not taken" in page
    assert not Experiment.objects.exists()
    assert not Dataset.objects.exists()
    member.post(address, {"import": "1"})
    experiment = Experiment.objects.get()
    assert (experiment.status, experiment.dataset.slug, experiment.dataset.active_count) == ("draft", "capitals", 3)
