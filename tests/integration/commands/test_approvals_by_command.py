"""The shell of the site approves, because it may do everything. A named user approves only what they may approve."""

import pytest
import yaml

from datasets_app.models import Dataset
from evalsite.lib import permissions
from evalsite.lib.history import StatusChange
from grading_app.models import Rubric
from runs_app.models import Prompt
from tests.factories import make_dataset, make_model, make_user
from tests.factories.judges import make_item_texts, make_starter_rubric

SHELL = "command line ("


@pytest.fixture
def people(operator):
    """A researcher and a curator."""
    return make_user("rita", permissions.RESEARCHER), make_user("carl", permissions.CURATOR)


def make_drafts():
    """Return a draft of everything that waits for an approval, by the command that approves it."""
    return {
        "dataset": make_dataset("drawn", approved=False),
        "prompt": Prompt.objects.create(name="plain", messages=[{"role": "user", "content": "{{input}}"}]),
        "rubric": make_starter_rubric(name="strict", status="draft"),
        "item_rubric": make_item_texts(make_dataset("asked"), status="draft"),
    }


@pytest.mark.parametrize("noun", ["dataset", "prompt", "rubric", "item_rubric"])
def test_the_shell_and_a_curator_approve_and_a_researcher_does_not(manage, people, noun):
    row = make_drafts()[noun]
    refused = manage(noun, "approve", row, "--reason", "mine", "--user", "rita")
    row.refresh_from_db()
    assert (refused.code, row.status) == (2, "draft")
    assert refused.err == (
        f"user: rita may not approve a {row._meta.verbose_name}; name a curator, or omit --user to approve as the shell"
    )
    assert manage(noun, "approve", row, "--reason", "read", "--user", "carl").code == 0
    assert get_approval(row).actor == "carl"


@pytest.mark.parametrize("noun", ["dataset", "prompt", "rubric", "item_rubric"])
def test_the_history_of_an_approval_by_the_shell_names_its_account(manage, people, noun):
    row = make_drafts()[noun]
    assert manage(noun, "approve", row, "--reason", "read").code == 0
    assert get_approval(row).actor.startswith(SHELL)


def get_approval(row):
    return StatusChange.objects.for_row(row).get(to_value="approved")


@pytest.mark.parametrize(("user", "actor"), [("rita", SHELL), ("carl", "carl")])
def test_the_shell_approves_the_texts_of_a_file_and_no_researcher_is_said_to_have_done_so(
    manage, people, lab, tmp_path, user, actor
):
    make_model("sim")
    judge = {"name": "judge", "model": "sim", "rubric": {"name": "strict", "user": "Judge {{answer}}"}}
    prompts = [{"name": "asked", "user": "{{input}}"}]
    path = tmp_path / "pilot.yaml"
    path.write_text(
        yaml.safe_dump({
            "experiment": "pilot", "dataset": str(Dataset.objects.get()), "models": ["sim"], "prompts": prompts,
            "grade": {"graders": [judge]},
        })
    )  # fmt: skip
    assert manage("experiment", "create", path, "--user", user).code == 0
    for row in (Prompt.objects.get(), Rubric.objects.get()):
        assert (row.status, row.created_by.username) == ("approved", user)
        assert get_approval(row).actor.startswith(actor)
