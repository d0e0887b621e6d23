"""The recipe for a provider, carried out on a copy of the tree: one module, one file of samples, one migration."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("evalsite", "datasets_app", "runs_app", "grading_app", "templates", "tests", "manage.py", "pyproject.toml")


def copy_tree(folder: Path) -> Path:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__", "static"))
        else:
            shutil.copy(source, folder / part)
    return folder


def read_declaration() -> str:
    """Return the module that the recipe shows."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = text[text.index("### A provider") : text.index("### A transition")]
    (code,) = re.findall(r"^ {8}\"\"\".+?^ {8}\)$", recipe, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(code) + "\n"


def run(tree: Path, *command: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "EVALSITE_DATA_DIR": str(tree / "var"),
        "DATABASE_URL": "postgres://nobody@127.0.0.1:9/none",  # None of these steps needs a database.
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_steps_of_the_recipe_make_a_provider_that_conforms(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "copy")
    declaration = read_declaration()
    (name,) = re.findall(r"\bname=\"(\w+)\"", declaration)
    (url,) = re.findall(r"default_url=\"https://[^/]+(\S*)\"", declaration)
    (tree / f"runs_app/llm/providers/{name}.py").write_text(declaration)

    assert f'("{name}", "Cerebras")' not in (tree / "runs_app/migrations/0001_initial.py").read_text()
    run(tree, "manage.py", "makemigrations", "runs_app")
    run(tree, "manage.py", "makemigrations", "--check")

    samples = tree / "tests/integration/gateway/provider_samples"
    sample = json.loads((samples / "groq.json").read_text())
    sample["request"] |= {"base": url, "path": f"{url}/chat/completions"}
    sample |= {"models_path": f"{url}/models", "model": "llama3.1-8b"}
    sample["replies"]["answer"]["read"].pop("served_model")
    (samples / f"{name}.json").write_text(json.dumps(sample))
    tests = "tests/integration/gateway/test_providers_conform.py"
    passed = run(
        tree, "-m", "pytest", "-q", "-p", "no:xdist", tests, "-k", f"{name} or every_provider or two_providers"
    )
    assert int(re.findall(r"(\d+) passed", passed)[0]) >= 15, passed
