"""`item_rubric`: every step of the site's workflow, from generated texts to an approved set."""

import json

import pytest
from django.core.management import CommandError, call_command

from grading_app.grading.judging.item_rubrics import collect_all_texts
from runs_app.models import Experiment, TextSet
from tests.factories import make_user
from tests.factories.engine import drain
from tests.integration.judging.test_item_rubrics import list_texts, quote_reference, writer  # noqa: F401 - a fixture


@pytest.fixture
def asking_writer(writer, capsys):  # noqa: F811
    make_user("root", superuser=True)
    call_command("item_rubric", "write", "pilot", "--template", "by-reference", "--model", "author", "--name", "own")
    assert "3 rubrics to write; cost: at most $" in capsys.readouterr().out
    drain(quote_reference)
    return writer


def run_refused(*words):
    with pytest.raises(CommandError) as caught:
        call_command("item_rubric", *words)
    return caught.value.returncode, str(caught.value)


def test_a_set_is_generated_collected_corrected_approved_and_archived(asking_writer, tmp_path, capsys):
    call_command("item_rubric", "collect", "own")
    assert "own@1: 3 new texts, 0 missing" in capsys.readouterr().out
    text = tmp_path / "better.txt"
    text.write_text("Right if it says nought.")
    call_command("item_rubric", "correct", "own", "item-0", text, "--reason", "clearer")
    newest = TextSet.objects.get(version=2)
    assert list_texts(newest)["item-0"] == "Right if it says nought."
    call_command("item_rubric", "approve", "own", "--reason", "read by two", "--user", "root")
    newest.refresh_from_db()
    assert (newest.status, newest.history[0].reason) == ("approved", "read by two")
    capsys.readouterr()
    call_command("item_rubric", "show", "own", "--json")
    output = json.loads(capsys.readouterr().out)
    assert (output["missing"], output["texts"]["item-1"]) == ([], "Right if it says 2.")
    call_command("item_rubric", "list")
    assert "own@2" in capsys.readouterr().out
    call_command("item_rubric", "archive", "own", "--reason", "a better one is there")
    newest.refresh_from_db()
    assert newest.status == "archived"


def test_waiting_reports_the_texts_that_a_worker_stored_first(writer, monkeypatch, capsys):  # noqa: F811
    make_user("root", superuser=True)

    def wait(command, runs):
        drain(quote_reference)
        collect_all_texts(writer.experiment)

    monkeypatch.setattr("grading_app.management.commands.item_rubric.wait_for", wait)
    words = ("--template", "by-reference", "--model", "author", "--name", "own", "--wait")
    call_command("item_rubric", "write", "pilot", *words)
    assert "own@1: 3 new texts, 0 missing" in capsys.readouterr().out


def test_a_set_with_an_item_without_a_text_is_not_approved(asking_writer):
    assert run_refused("approve", "own", "--reason", "x") == (
        2, "own@1 cannot be approved: no text for item-0, item-1, item-2.",
    )  # fmt: skip


def test_an_unknown_name_is_quoted_in_the_error(asking_writer):
    for words, named in (
        (["write", "nobody", "--template", "by-reference", "--model", "author"], "there is no experiment nobody"),
        (["write", "pilot", "--template", "nothing", "--model", "author"], "--template: there is no rubric nothing"),
        (["write", "pilot", "--template", "by-reference", "--model", "x"], "--model: there is no model x"),
        (["correct", "own", "item-9", "/nowhere", "--reason", "x"], "has no active item item-9"),
    ):
        code, message = run_refused(*words)
        assert code == 2, words
        assert named in message, words


def test_a_cost_above_the_limit_is_confirmed(writer, monkeypatch):  # noqa: F811
    make_user("root", superuser=True)
    Experiment.objects.update(confirm_above_usd="0.0001")
    words = ("write", "pilot", "--template", "by-reference", "--model", "author")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert run_refused(*words)[0] == 3
    assert not TextSet.objects.exists()
    call_command("item_rubric", *words, "--yes")
    assert TextSet.objects.get().name == "pilot-rubrics"
