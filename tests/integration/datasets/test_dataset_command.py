"""`manage.py dataset`: its output, and its exit codes 0, 2 and 3."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from datasets_app.models import Dataset
from tests.factories.files import build_picture

pytestmark = pytest.mark.django_db


def run_dataset(*arguments) -> str:
    out = io.StringIO()
    call_command("dataset", *map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def run_refused(*arguments, code: int = 2) -> str:
    err = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("dataset", *map(str, arguments), stdout=io.StringIO(), stderr=err)
    assert caught.value.returncode == code
    return err.getvalue() + str(caught.value)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "cats.csv"
    path.write_text("id,file,kind\none,cat.png,a\ntwo,cat.png,b\n")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "cat.png").write_bytes(build_picture(form="PNG"))
    return path


def test_import_reads_table_images_and_norms(table, tmp_path):
    (tmp_path / "norms.csv").write_text("key,joy_mean\none,5\n")
    printed = run_dataset(
        "import",
        table,
        "--name",
        "cats",
        "--map",
        "category=kind",
        "--images",
        tmp_path / "pictures",
        "--norms",
        tmp_path / "norms.csv",
        "--licence",
        "CC0",
    )
    assert "cats@1 (draft): 2 active items" in printed
    assert "warning: key: 1 items have no norms: 'two'" in printed
    created = Dataset.objects.get()
    assert (created.licence, created.mapping["category"]) == ("CC0", "kind")
    assert created.items.get(key="one").norms.get().mean == 5


def test_import_names_the_row_and_saves_nothing(table, tmp_path):
    table.write_text("id,file\none,cat.png\none,dog.png\n,cat.png\n")
    printed = run_refused("import", table, "--name", "cats", "--images", tmp_path / "pictures")
    assert "row 2 (line 3), key: 'one' is the key of row 1 already" in printed
    assert "row 3 (line 4), key: is empty" in printed
    assert "cats.csv: 2 errors; nothing was saved" in printed
    assert not Dataset.objects.exists()


def test_a_dry_run_saves_nothing(table, tmp_path):
    assert "2 items could be imported" in run_dataset(
        "import", table, "--name", "cats", "--images", tmp_path / "pictures", "--dry-run"
    )
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "nowhere.csv", "--name", "x"], "nowhere.csv: is not a readable file"),
        (["approve", "none@1", "--reason", "x"], "there is no dataset 'none@1'"),
        (["approve", "set", "--reason", "x"], "which version of 'set'"),
        (["exclude", "set@1", "nope", "--note", "x"], "not among the items of set@1: 1 item: nope"),
        (["archive", "set@1", "--reason", "x"], "only approved can become archived"),
        (["generate", "set@1", "--name", "y", "--n", "100"], "cannot draw 100 of 9"),
        (["generate", "set@1", "--name", "Not A Name", "--n", "3"], "name: "),
        (["add", "set@1", "k1"], "from: name the dataset"),
        (["replace", "set@1", "k1"], "set@1 was not drawn"),
    ],
)
def test_invalid_input_exits_with_2_and_names_the_problem(draft, arguments, message):
    assert message in run_refused(*arguments)


def test_a_bad_mapping_ends_with_2_and_names_the_field(table):
    assert "map kee: unknown field" in run_refused("import", table, "--name", "x", "--map", "kee=id")
    assert "map key: no column 'idd'" in run_refused("import", table, "--name", "x", "--map", "key=idd")


def test_deleting_requires_confirmation(draft, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "Delete set@1 with its 9 items? Confirm with --yes" in run_refused("delete", "set@1", code=3)
    assert Dataset.objects.exists()
    assert "set@1 is deleted" in run_dataset("delete", "set@1", "--yes")
    assert not Dataset.objects.exists()


def test_a_whole_curation(draft):
    run_dataset("exclude", "set@1", "k0", "k1", "--note", "unclear")
    run_dataset("include", "set@1", "k1")
    assert "a: 2" in run_dataset("generate", "set@1", "--name", "small", "--strategy", "uniform", "--n", 6, "--seed", 1)
    small = Dataset.objects.get(slug="small")
    first = small.items.first().key
    run_dataset("remove", "small@1", first, "--reason", "too easy")
    run_dataset("add", "small@1", first)
    run_dataset("reshuffle", "small@1", "--seed", 9)
    run_dataset("replace", "small@1", small.items.filter(category="b").first().key)
    assert "holds" in run_dataset("approve", "small@1", "--reason", "ready")
    run_dataset("archive", "small@1", "--reason", "superseded")
    assert "small@2 (draft)" in run_dataset("duplicate", "small@1")
    output = run_dataset("show", "small@1", "--items")
    for words in (
        "small@1 (archived)",
        "status draft → approved: ready",
        "status approved → archived: superseded",
        "command line",
    ):
        assert words in output
    assert small.items.first().key in output


@pytest.mark.slow
def test_items_and_norms_of_a_file_are_added_to_a_draft(draft, tmp_path):
    (tmp_path / "more.csv").write_text("id,text\nnew,Q\n")
    (tmp_path / "norms.csv").write_text("key,joy_mean\nnew,5\n")
    assert "10 active items" in run_dataset("add", "set@1", "--file", tmp_path / "more.csv")
    assert "set@1: 1 norms" in run_dataset("norms", "set@1", tmp_path / "norms.csv")
    assert draft.items.get(key="new").norms.get().mean == 5


def test_facts_are_json_for_other_programs(draft):
    draft.approve(by="a test", reason="ok")
    facts = json.loads(run_dataset("show", "set@1", "--json"))
    assert facts["content_hash"] == draft.content_hash
    assert facts["categories"] == {"a": 3, "b": 3, "c": 3}
    assert [row["dataset"] for row in json.loads(run_dataset("list", "--json"))] == ["set@1"]
    assert "set@1" not in run_dataset("list", "--status", "draft")


def test_facts_and_items_are_one_json_document(draft):
    draft.exclude_items(["k1"], by="a test", reason="blurred")
    facts = json.loads(run_dataset("show", "set@1", "--items", "--json"))
    assert (facts["dataset"], facts["item_count"], facts["active"]) == ("set@1", 9, 8)
    rows = {row["key"]: row for row in facts["items"]}
    assert list(rows) == [item.key for item in draft.items.all()]
    assert (rows["k1"]["excluded"], rows["k1"]["note"]) == (True, "blurred")
    item = draft.items.get(key="k0")
    norms = {norm.dimension: {"mean": norm.mean, "sd": norm.sd, "n": norm.n} for norm in item.norms.all()}
    assert norms
    assert (rows["k0"]["input"], rows["k0"]["norms"]) == (item.input, norms)


def test_a_dataset_without_items_has_an_empty_list():
    Dataset.objects.create(slug="empty", version=1)
    assert json.loads(run_dataset("show", "empty@1", "--items", "--json"))["items"] == []


def test_show_reports_a_hash_that_does_not_match(draft):
    """This is possible only with disabled triggers."""
    from django.db import connection

    draft.approve(by="a test", reason="ok")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE datasets_app_item SET input = 'forged' WHERE key = 'k0'")
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    assert "DOES NOT HOLD" in run_dataset("show", "set@1")


def test_the_history_names_the_given_user(draft, curator):
    run_dataset("approve", "set@1", "--reason", "ok", "--user", "curator")
    assert draft.history.first().by == curator
    assert "there is no user nobody" in run_refused("archive", "set@1", "--reason", "x", "--user", "nobody")


def test_describe_changes_the_description_and_needs_a_reason_after_approval(table, tmp_path):
    run_dataset("import", table, "--name", "cats", "--images", tmp_path / "pictures", "--licence", "CC0")
    assert "changed title" in run_dataset("describe", "cats@1", "--title", "Cats")
    run_dataset("approve", "cats@1", "--reason", "checked")
    assert "say why to change licence of cats@1" in run_refused("describe", "cats@1", "--licence", "CC BY")
    run_dataset("describe", "cats@1", "--licence", "CC BY", "--reason", "the author said so")
    assert "licence CC0 → CC BY: the author said so" in run_dataset("show", "cats@1")
    imported_dataset = Dataset.objects.get()
    assert (imported_dataset.title, imported_dataset.licence) == ("Cats", "CC BY")
    assert "name the fields to change" in run_refused("describe", "cats@1", "--reason", "none")
    assert "title: Ensure this value has at most 200" in run_refused(
        "describe", "cats@1", "--title", "x" * 201, "--reason", "r"
    )
    assert "nothing is different" in run_dataset("describe", "cats@1", "--title", "Cats")
