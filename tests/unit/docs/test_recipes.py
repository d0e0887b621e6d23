"""The files and names in the recipes of CONTRIBUTING and in the figure of a trial's path exist in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APPS = ("evalsite", "datasets_app", "runs_app", "grading_app")
# Files that each app has, and names that are not the project's.
BY_KIND = {"urls.py", "tasks.py", "triggers.sql"}
FOREIGN = {"makemigrations", "RunSQL", "Meta", "Status", "NAME", "FORMAT", "transaction"}
NAME = re.compile(r"^@?([A-Za-z_]\w*)(?:\(.*\)|\.\w+| = .*)?$", re.DOTALL)


def read_recipes():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    chapter = text[text.index("## Recipes") : text.index("## Dependencies")]
    parts = re.split(r"^### (.+)$", chapter, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_kind_of_extension_has_a_recipe():
    wanted = {"A scorer", "A figure", "A parametric task", "A task for the queue", "A provider", "A format of datasets"}
    assert wanted | {"A format of studies", "A section of the report"} <= set(read_recipes())


@pytest.mark.parametrize("name", read_recipes())
def test_every_file_of_a_recipe_exists_under_its_full_path(name):
    files = re.findall(r"`([\w./-]+\.(?:py|sql|html|md|toml))`", read_recipes()[name])
    assert [file for file in files if file not in BY_KIND and not (ROOT / file).is_file()] == []


def read_code(quoted):
    """Return the text of the files and folders among these words."""
    paths = [ROOT / word for word in quoted if "/" in word]
    files = [file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path]) if file.is_file()]
    return "".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("name", read_recipes())
def test_every_name_in_a_recipe_occurs_in_one_of_its_files(name):
    quoted = re.findall(r"`([^`]+)`", read_recipes()[name])
    names = {match[1] for word in quoted if (match := NAME.match(word))} - FOREIGN
    code = read_code(quoted)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)] == []


def test_the_figure_of_a_trials_path_names_existing_modules():
    picture = (ROOT / "docs" / "images" / "path-of-a-trial.svg").read_text(encoding="utf-8")
    named = re.findall(r">([\w/]+\.py)<", picture)
    modules = [str(file.relative_to(ROOT)) for app in APPS for file in (ROOT / app).rglob("*.py")]
    assert len(named) > 10
    assert [one for one in named if not any(module.endswith(f"/{one}") for module in modules)] == []


def test_the_readme_lists_the_modules_in_the_figure_of_a_trials_path():
    picture = (ROOT / "docs" / "images" / "path-of-a-trial.svg").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. \[([\w/]+\.py)\]", readme, re.MULTILINE)
    assert len(listed) == 10
    assert [one for one in listed if f">{one}<" not in picture] == []
