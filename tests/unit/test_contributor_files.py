"""The hooks before a commit and the forms of issues."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_hooks_before_a_commit_use_only_programs_of_the_locked_packages():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    assert {hook["language"] for hook in hooks[0]["hooks"]} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks[0]["hooks"]}
    assert programs == {".venv/bin/ruff", ".venv/bin/djade", ".venv/bin/lint-imports"}


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.name)
def test_every_field_of_an_issue_form_has_its_own_id_and_label(form):
    fields = [field for field in yaml.safe_load(form.read_text()).get("body", []) if field["type"] != "markdown"]
    names = [(field["id"], field["attributes"]["label"]) for field in fields]
    assert [len(set(column)) for column in zip(*names, strict=True)] in ([], [len(names)] * 2)
