"""Datasets of the Hugging Face hub as drafts, from a loopback server with the hub's endpoints."""

import io

import pytest
from django.core.management import CommandError, call_command

from datasets_app.importing.hub_dataset import download_split
from datasets_app.importing.limits import Limits
from datasets_app.importing.records import FileError
from datasets_app.models import Dataset
from tests.factories.hub import FIRST, SECOND, serve_hub

pytestmark = pytest.mark.django_db
CSV = "id,question,answer\na,1 + 1?,2\nb,2 + 2?,4\n"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_hub() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        served.files[FIRST] = {"README.md": b"# Sums", "data/test.csv": CSV.encode()}
        served.files[SECOND] = {"README.md": b"# Sums", "data/test.csv": (CSV + "c,3 + 3?,6\n").encode()}
        yield served


def write_parquet(*rows):
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), buffer)
    return buffer.getvalue()


def download(*options):
    call_command("dataset", "download", "lab/sums", "--name", "sums", *options)
    return Dataset.objects.get()


def download_refused(*options, repository="lab/sums"):
    with pytest.raises(CommandError) as raised:
        call_command("dataset", "download", repository, "--name", "sums", *options)
    assert raised.value.returncode == 2
    assert not Dataset.objects.exists()
    return str(raised.value)


def test_a_branch_is_resolved_and_its_commit_is_recorded(hub, capsys):
    dataset = download("--split", "test")
    assert (dataset.status, dataset.item_count) == ("draft", 3)
    assert dataset.source == f"Hugging Face hub: lab/sums, split test, revision {SECOND}"
    assert dataset.recipe == {
        "hub": "lab/sums", "configuration": "", "split": "test", "revision": SECOND, "files": ["data/test.csv"],
    }  # fmt: skip
    assert f"lab/sums at revision main: commit {SECOND}" in capsys.readouterr().out
    fetched = [path for method, path, _ in hub.requests if "/resolve/" in path]
    assert fetched
    assert all(f"/resolve/{SECOND}/" in path for path in fetched), "a branch that moves must change nothing"


@pytest.mark.slow
def test_an_older_commit_gives_its_own_rows(hub):
    dataset = download("--split", "test", "--revision", FIRST, "--source", "The lab", "--licence", "CC0")
    assert dataset.item_count == 2
    assert dataset.source == f"The lab\nHugging Face hub: lab/sums, split test, revision {FIRST}"
    assert dataset.licence == "CC0"


@pytest.mark.slow
def test_a_configuration_of_the_card_names_its_files(hub):
    hub.card = {
        "license": "mit",
        "configs": [
            {"config_name": "easy", "data_files": [{"split": "test", "path": "one/*.parquet"}]},
            {"config_name": "hard", "data_files": [{"split": "test", "path": ["two/a.parquet", "two/b.parquet"]}]},
        ],
    }
    hub.files[SECOND] |= {
        "one/x.parquet": write_parquet({"id": "a", "question": "1 + 1?"}),
        "two/a.parquet": write_parquet({"id": "b", "question": "2 + 2?"}),
        "two/b.parquet": write_parquet({"id": "c", "question": "3 + 3?"}),
    }
    dataset = download("--split", "test", "--config", "hard")
    assert list(dataset.items.values_list("key", "input")) == [("b", "2 + 2?"), ("c", "3 + 3?")]
    assert dataset.licence == "mit"
    assert dataset.recipe["files"] == ["two/a.parquet", "two/b.parquet"]
    assert "configuration hard" in dataset.source


@pytest.mark.slow
def test_the_usual_names_of_shards_are_found(hub):
    hub.files[SECOND] = {
        "main/train-00000-of-00001.parquet": write_parquet({"id": "t", "question": "no"}),
        "main/test-00000-of-00001.parquet": write_parquet({"id": "a", "question": "1 + 1?"}),
    }
    dataset = download("--split", "test", "--config", "main", "--map", "input=question")
    assert list(dataset.items.values_list("key", flat=True)) == ["a"]


@pytest.mark.slow
def test_a_file_can_be_named_if_no_split_is_found(hub):
    hub.files[SECOND] = {"strange/name.jsonl": b'{"id": "a", "question": "1 + 1?"}\n', "other.csv": CSV.encode()}
    message = download_refused("--split", "test")
    assert "no file of the split 'test' was found; choose a data file: other.csv, strange/name.jsonl" in message
    assert download("--data-file", "strange/name.jsonl").item_count == 1


@pytest.mark.slow
def test_a_dry_run_saves_nothing(hub, capsys):
    call_command("dataset", "download", "lab/sums", "--name", "sums", "--split", "test", "--dry-run")
    assert "3 items could be imported" in capsys.readouterr().out
    assert not Dataset.objects.exists()


@pytest.mark.slow
def test_errors_of_rows_name_the_row(hub, capsys):
    hub.files[SECOND]["data/test.csv"] = (CSV + "a,again,1\n").encode()
    assert "1 error; nothing was saved" in download_refused("--split", "test")
    assert "row 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        ({"private": True}, [], "the hub has no dataset lab/sums; if it is private, set HF_TOKEN"),
        ({"private": "gated"}, [], "lab/sums is gated: accept its terms on the hub, then set HF_TOKEN"),
        ({}, ["--revision", "v9"], "lab/sums has no revision 'v9': name a branch, a tag or a commit"),
        ({"error": 500}, [], "the hub answered 500 for lab/sums: try again later"),
        ({"sha": "main"}, [], "the hub gave no commit for the revision 'main'"),
    ],
)
def test_refusals_by_the_hub_are_explained(hub, prepare, options, message):
    for name, value in prepare.items():
        setattr(hub, name, value)
    assert message in download_refused("--split", "test", *options)


def test_an_invalid_name_is_refused_without_a_request(hub):
    assert "write OWNER/NAME" in download_refused("--split", "test", repository="../../etc")
    assert not hub.requests


def test_an_unreachable_hub_says_what_to_do(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    message = download_refused("--split", "test")
    assert "the Hugging Face hub at 127.0.0.1 cannot be reached" in message
    assert "set HF_ENDPOINT to a mirror, or download the file elsewhere and import it" in message


def test_a_token_is_sent_and_never_shown(hub, monkeypatch, capsys, caplog):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.private = True
    with caplog.at_level("DEBUG"):
        dataset = download("--split", "test")
        hub.error = 500
        with pytest.raises(CommandError) as raised:
            call_command("dataset", "download", "lab/sums", "--name", "other", "--split", "test")
    assert {header for _, _, header in hub.requests} == {"Bearer hf_secret"}
    output = capsys.readouterr()
    stored = f"{dataset.source} {dataset.recipe} {dataset.mapping} {dataset.source_name}"
    for text in (output.out, output.err, caplog.text, str(raised.value), stored):
        assert "hf_secret" not in text


def test_a_token_is_never_sent_unencrypted_to_another_machine(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.invalid")
    assert "HF_TOKEN would be sent unencrypted" in download_refused("--split", "test")


def test_a_file_that_is_too_large_is_refused_before_its_download(hub):
    with pytest.raises(FileError, match="at most 0 MiB are read"):
        download_split("lab/sums", split="test", limits=Limits(file_bytes=10))
    assert not any("/resolve/" in path for _, path, _ in hub.requests)
