"""`prompt`, `sampler`, `dimension`, `rubric` and `grader`: from a file to a version, approved, shown and archived."""

import json

import pytest
import yaml

from grading_app.models import Grader, Rubric
from runs_app.models import Dimension, Prompt, Sampler
from tests.factories import make_experiment, make_user
from tests.factories.drafts import make_rehearsal_model

FILES = {
    "prompt": {"name": "plain", "user": "{{input}}", "system": "Answer."},
    "sampler": {"name": "cold", "temperature": 0.0, "max_tokens": 50},
    "dimension": {"name": "valence", "instructions": "How pleasant?", "min": 1, "max": 5, "labels": {1: "Not"}},
    "rubric": {"name": "right", "user": "{{target}} {{answer}}", "kind": "score", "min": 0.0, "max": 4.0},
}
KINDS = {"prompt": Prompt, "sampler": Sampler, "dimension": Dimension, "rubric": Rubric}


@pytest.fixture
def file(tmp_path):
    def write(content, name="part.yaml"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


@pytest.mark.parametrize("noun", FILES)
def test_a_file_becomes_a_draft_and_is_shown_as_a_file_again(manage, operator, file, noun):
    result = manage(noun, "create", file(FILES[noun]))
    row = KINDS[noun].objects.get()
    assert (result.code, row.status, row.created_by) == (0, "draft", operator)
    assert str(row) in result.out
    output = manage(noun, "show", row.name).out
    assert yaml.safe_load(output)["name"] == row.name
    second_result = manage(noun, "create", file(yaml.safe_dump(yaml.safe_load(output))))
    assert "already has this content" in second_result.out
    assert KINDS[noun].objects.count() == 1
    assert json.loads(manage(noun, "list", "--json").out)[0]["version"] == 1
    assert str(row) in manage(noun, "list").out


@pytest.mark.parametrize("noun", ["prompt", "rubric"])
def test_a_draft_is_approved_and_archived_with_a_reason_in_its_history(manage, operator, file, noun):
    manage(noun, "create", file(FILES[noun]))
    name = FILES[noun]["name"]
    assert manage(noun, "approve", name, "--reason", "read twice", "--user", "root").code == 0
    row = KINDS[noun].objects.get()
    assert (row.status, row.history[0].reason, row.history[0].by) == ("approved", "read twice", operator)
    assert row.approved_at is not None
    second_result = manage(noun, "approve", f"{name}@1", "--reason", "again")
    assert (second_result.code, "can become approved" in second_result.err) == (2, True)
    assert manage(noun, "archive", name, "--reason", "old").code == 0
    row.refresh_from_db()
    assert row.status == "archived"
    assert "read twice" in manage(noun, "show", name).out


def test_an_existing_name_creates_the_next_version(manage, operator, file):
    manage("prompt", "create", file(FILES["prompt"]))
    manage("prompt", "create", file({"name": "plain", "user": "Say: {{input}}"}))
    assert [prompt.version for prompt in Prompt.objects.order_by("version")] == [1, 2]
    assert "Say: " in manage("prompt", "show", "plain").out
    assert "Say: " not in manage("prompt", "show", "plain@1").out


@pytest.mark.parametrize(
    ("noun", "content", "message"),
    [
        ("prompt", {"name": "p", "usr": "x"}, "prompt.usr: unknown key; did you mean user?"),
        ("prompt", {"name": "p", "user": "{{inptu}}"}, "prompt.messages: Turn 1: unknown variable {{inptu}}. It may"),
        ("prompt", {"name": "P", "user": "x"}, "prompt.name: string should match pattern"),
        ("prompt", "- a\n- b\n", "prompt: the file must be a mapping"),
        ("prompt", "a: [", "this is not YAML"),
        ("sampler", {"name": "s", "temperature": 9.0}, "sampler.temperature: "),
        (
            "dimension",
            {"name": "d", "instructions": "x", "min": 5, "max": 1},
            "dimension.max: The end of the scale must be above",
        ),
        ("rubric", {"name": "r", "user": "x"}, "rubric.messages: No turn contains {{answer}}"),
        ("rubric", {"name": "r", "user": "{{answer}}", "kind": "label"}, "rubric.labels: "),
        ("grader", {"name": "g", "model": "nobody", "rubric": "none"}, "there is no language model nobody"),
    ],
)
def test_invalid_content_exits_with_2_names_the_key_and_creates_nothing(manage, operator, file, noun, content, message):
    result = manage(noun, "create", file(content))
    assert result.code == 2
    assert message in result.err
    assert not any(kind.objects.exists() for kind in (Prompt, Sampler, Dimension, Rubric, Grader))


@pytest.mark.parametrize("noun", [*FILES, "grader", "item_rubric"])
def test_an_unknown_name_exits_with_2(manage, operator, noun):
    for verb in ("show", "archive"):
        result = manage(noun, verb, "nobody", *(["--reason", "x"] if verb == "archive" else []))
        assert result.code == 2
        assert f"`{noun} list`" in result.err


def test_a_grader_is_created_with_its_inline_definitions(manage, operator, file):
    make_rehearsal_model("large")
    content = {"name": "judge", "model": "large", "rubric": FILES["rubric"], "on_empty": "zero"}
    assert manage("grader", "create", file(content)).code == 0
    grader = Grader.objects.get()
    assert (grader.rubric.status, grader.sampler.name, grader.on_empty) == ("approved", "judging", "zero")
    assert "already has this content" in manage("grader", "create", file(content)).out
    other = manage("grader", "create", file({**content, "on_empty": "skip"}))
    assert (other.code, Grader.objects.count()) == (2, 1)
    assert yaml.safe_load(manage("grader", "show", "judge").out)["model"]["name"] == "large"
    assert "large" in manage("grader", "list").out
    assert manage("grader", "archive", "judge", "--reason", "old").code == 0
    assert "archived" in manage("grader", "list").out


def test_with_a_user_the_rule_of_who_may_archive_holds(manage, operator, file):
    someone = make_user("someone", "Researcher")
    manage("sampler", "create", file(FILES["sampler"]), "--user", "someone")
    make_experiment(samplers=list(Sampler.objects.all()))
    result = manage("sampler", "archive", "cold", "--reason", "mine", "--user", "someone")
    assert (result.code, Sampler.objects.get(name="cold").status) == (2, "draft")
    assert "is used by experiments of other users: only a curator can archive it" in result.err
    assert someone.pk == Sampler.objects.get(name="cold").created_by_id
