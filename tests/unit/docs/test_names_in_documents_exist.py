"""Names of code in the Markdown files, and names of modules in the docstrings of packages, exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APPS = ("evalsite", "datasets_app", "runs_app", "grading_app")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGES = sorted(file for app in APPS for file in (ROOT / app).rglob("__init__.py"))
QUOTED = re.compile(r"`([^`\n]+)`")
# Names with an underscore or with capitals inside, and dotted names. Single words are often not names of code.
NAME = re.compile(r"\b(?:[A-Za-z]\w*(?:\.[A-Za-z]\w*)+|[A-Za-z]+_\w+|[A-Z][a-z]+[A-Z]\w+)\b")
SOURCES = ("*.py", "*.sql", "*.html", "*.toml", "*.yaml", "*.service", "*.typ")
# Names that the code composes from a kind, a key or a dimension.
EXAMPLES = {"item_dimension", "score_valence", "score_12"}
EXAMPLES |= {"no_label_in_json", "no_criteria_in_json", "no_winner_in_json"}
# Files that CONTRIBUTING advises against, and names of a library.
FOREIGN = {"services.py", "utils.py", "helpers.py", "o200k_base", "cl100k_base"}


@cache
def list_code_words():
    folders = (*APPS, "templates", "benchmarks", "samples", "docs/deploy", "tests")
    files = [file for folder in folders for kind in SOURCES for file in (ROOT / folder).rglob(kind)]
    texts = [file.read_text(encoding="utf-8") for file in [*files, ROOT / "pyproject.toml", ROOT / "Makefile"]]
    return set(re.findall(r"\w+", " ".join(texts))) | {file.stem for file in files}


@cache
def list_file_names():
    folders = [ROOT / folder for folder in (*APPS, "tests", "benchmarks")]
    return {
        file.name for file in [*ROOT.glob("*.py"), *(found for folder in folders for found in folder.rglob("*.py"))]
    }


def find_missing_names(quoted):
    if re.fullmatch(r"[\w/]+\.py", quoted):
        return [] if Path(quoted).name in list_file_names() else [quoted]
    return [name for name in NAME.findall(quoted) if not set(name.split(".")) <= list_code_words()]


@pytest.mark.parametrize("document", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_names_of_code_in_a_document_exist(document):
    quoted = set(QUOTED.findall(document.read_text(encoding="utf-8"))) - EXAMPLES - FOREIGN
    assert sorted(name for text in quoted for name in find_missing_names(text)) == []


@pytest.mark.parametrize("document", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_text_of_a_link_to_a_module_is_its_path(document):
    links = re.findall(r"\[([\w/]+\.py)\]\(([^)]+)\)", document.read_text(encoding="utf-8"))
    assert [text for text, target in links if not target.endswith(f"/{text}")] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda file: str(file.parent.relative_to(ROOT)))
def test_names_in_the_docstring_of_a_package_exist(package):
    """A name is a module of the package or an app, or a word of the package's code. Commands are names, too."""
    docstring = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
    code = " ".join(file.read_text(encoding="utf-8") for file in package.parent.rglob("*.py") if file != package)
    commands = {file.stem for app in APPS for file in (ROOT / app).rglob("management/commands/*.py")}
    known = {*re.findall(r"\w+", code), *commands, *APPS}
    neighbours = package.parent if package.parent.parent == ROOT else package.parent.parent
    known |= {path.stem for path in neighbours.rglob("*") if path.suffix in ("", ".py")}
    named = {word for quoted in QUOTED.findall(docstring) for word in re.findall(r"\w+", quoted.split("(")[0])}
    assert sorted(named - known) == []


def test_contributing_describes_every_package_with_a_subject_of_its_own():
    document = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    usual = {"models", "admin", "forms", "tables", "views", "management", "migrations", "templatetags"}
    packages = {file.parent.name for app in APPS[1:] for file in (ROOT / app).glob("*/__init__.py")} - usual
    assert sorted(packages - set(re.findall(r"^\| `(\w+)/` \|", document, re.MULTILINE))) == []
