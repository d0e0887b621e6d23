"""References in the Markdown files exist, and existing parts are referenced: links, paths, tests, commands, pages."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TOPS = ("evalsite", "datasets_app", "runs_app", "grading_app", "templates", "tests", "samples", "benchmarks", "docs")
PATH = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./-]*)`")
TEST = re.compile(r"`(tests/[\w./-]+\.py)::(\w+)`")


@cache
def read_page(page):
    return CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


def get_relative_path(page):
    return str(page.relative_to(ROOT))


def make_anchor(heading):
    """Return the anchor that common renderers make from a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def list_anchors(page):
    return {make_anchor(heading) for heading in re.findall(r"^#+ (.+)$", read_page(page), re.MULTILINE)}


def test_the_documents_are_found():
    assert {"README.md", "CONTRIBUTING.md", "THREAT_MODEL.md", "CHANGELOG.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("document", PAGES, ids=get_relative_path)
def test_relative_links_point_to_existing_files_and_headings(document):
    broken = []
    for target in LINK.findall(read_page(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked_file = (document.parent / path).resolve() if path else document
        if not linked_file.exists() or (anchor and anchor not in list_anchors(linked_file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", PAGES, ids=get_relative_path)
def test_named_paths_of_the_project_exist(document):
    named = set(PATH.findall(read_page(document)))
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("document", PAGES, ids=get_relative_path)
def test_tests_named_as_proof_exist(document):
    missing = []
    for path, name in TEST.findall(read_page(document)):
        file = ROOT / path
        if not file.exists() or not re.search(rf"^\s*(?:async )?def {name}\(", file.read_text("utf-8"), re.MULTILINE):
            missing.append(f"{path}::{name}")
    assert missing == []


def is_run_by_make_test(path, name):
    """Return whether `make test` runs this test: it is not marked slow, and in tests/system it is marked quick."""
    text = (ROOT / path).read_text(encoding="utf-8")
    marks = re.search(rf"((?:^@.*\n)*)^(?:async )?def {name}\(", text, re.MULTILINE)[1] if name else ""
    wanted = "mark.quick" in marks or not path.startswith("tests/system/")
    return wanted and "mark.slow" not in marks and not re.search(r"^pytestmark = .*mark\.slow", text, re.MULTILINE)


def test_every_promise_of_the_engine_has_a_test_that_make_test_runs():
    (section,) = re.findall(
        r"^## The engine's promises\n(.*)^### Faults\n",
        read_page(ROOT / "docs" / "engine.md"),
        re.MULTILINE | re.DOTALL,
    )
    promises = re.findall(r"^- \*\*(.+?)\*\*(.*?)(?=^- |^###? |\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(promises) > 20
    proofs = {promise: re.findall(r"`(tests/[\w./-]+\.py)(?:::(\w+))?`", text) for promise, text in promises}
    unproven = [promise for promise, tests in proofs.items() if not any(is_run_by_make_test(*test) for test in tests)]
    assert unproven == []


def test_the_index_names_every_page():
    named = set(LINK.findall(read_page(ROOT / "docs" / "index.md")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= named


def test_contributing_describes_every_folder_of_tests():
    folders = {f"{file.parent.relative_to(ROOT)}/" for file in (ROOT / "tests").rglob("test_*.py")}
    assert folders <= set(PATH.findall(read_page(ROOT / "CONTRIBUTING.md")))


def test_make_commands_in_the_readme_are_makefile_targets():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test", "test-all"} <= named
    assert named <= targets
