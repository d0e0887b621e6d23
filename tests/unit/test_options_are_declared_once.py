"""An option of an experiment is declared once; forms, files, commands, pages, reports and documents follow from it."""

import re
from pathlib import Path

import pytest

from runs_app.experiment_options import GROUPS, NAMES, OPTIONS, ExperimentOption, list_options, write_documentation

ROOT = Path(__file__).resolve().parents[2]
# Modules and templates that present every option, and therefore name none of them.
PRESENTERS = (
    "runs_app/admin.py",
    "runs_app/bounds.py",
    "runs_app/experiment_files/row_builder.py",
    "grading_app/forms/experiments.py",
    "runs_app/management/experiment_verbs.py",
    "runs_app/models/bounded.py",
    "runs_app/planning/manifests.py",
    "runs_app/planning/spec_io.py",
    "grading_app/publish/report/build.py",
    "grading_app/publish/report/sections/appendix.py",
    "templates/runs_app/experiment_form.html",
    "templates/runs_app/experiment_settings.html",
    "templates/runs_app/partials/experiment_facts.html",
    "templates/runs_app/partials/option_rows.html",
)
# Other columns of the same name, and the policy that a manifest's estimate depends on.
OTHER_MEANINGS = {
    ("runs_app/admin.py", "max_usd"),
    ("runs_app/admin.py", "max_concurrency"),
    ("runs_app/bounds.py", "max_concurrency"),
    ("grading_app/forms/experiments.py", "primary_measure"),
    ("runs_app/planning/manifests.py", "budget_policy"),
}
OWN = {"runs_app/experiment_options.py", "runs_app/models/experiments.py", "runs_app/migrations/0001_initial.py"}
# Names that mean nothing else in this repository. Others, such as `cache` and `samples`, have more than one meaning.
OWN_NAMES = ("max_backoff_s", "stop_after_attempts", "lease_s", "cache_buster", "on_unreadable")
# The engine, what shows a request before it is sent, and readers of other tools' files use single options.
USERS = (
    "runs_app/engine/",
    "runs_app/planning/cost_estimate.py",
    "runs_app/prompt_preview.py",
    "templates/runs_app/partials/preview.html",
    "grading_app/study_import/",
)


def find_modules_that_name(name):
    for folder in ("evalsite", "datasets_app", "runs_app", "grading_app", "templates"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".html") and re.search(rf"\b{name}\b", path.read_text("utf-8")):
                yield str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PRESENTERS)
def test_what_presents_all_options_names_none(path):
    text = (ROOT / path).read_text("utf-8")
    distinct = {name for name in NAMES if "_" in name and (path, name) not in OTHER_MEANINGS}
    assert [name for name in distinct if re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("name", OWN_NAMES)
def test_an_option_is_named_by_its_declaration_its_column_and_the_modules_that_use_it(name):
    naming = set(find_modules_that_name(name))
    assert naming >= OWN
    assert [path for path in naming - OWN if not path.startswith(USERS)] == []


def test_names_and_keys_are_unique_and_every_option_has_its_texts():
    assert len(set(NAMES)) == len({option.key for option in OPTIONS}) == len(OPTIONS)
    assert sorted(NAMES) == sorted(option.name for group in GROUPS for option in list_options(group=group))
    for option in OPTIONS:
        assert all([option.label, option.help, option.docs]), f"{option.name} lacks a text"
        assert option.bound or option.choices or option.longest or option.kind is bool, (
            f"{option.name} accepts any value"
        )
        if option.default is not None:
            assert not option.bound or option.bound.contains(option.default)
            assert not option.choices or option.default in dict(option.choices)


@pytest.mark.parametrize("group", GROUPS)
def test_the_document_of_the_file_has_the_text_of_the_declarations(group):
    document = (ROOT / "docs" / "experiment-file.md").read_text("utf-8")
    expected = write_documentation(group)
    assert expected in document, f"Replace the list in docs/experiment-file.md by:\n{expected}"


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("samples", 3, "3 per cell"),
        ("cache", True, "used"),
        ("cache", False, "off"),
        ("shuffle", None, "in their order"),
        ("shuffle", 7, "in random order, seed 7"),
        ("max_usd", 2.5, "$2.50"),
        ("backoff_s", 1.5, "1.5 s, doubled for each further retry"),
        ("on_empty", "skip", "Keep, do not grade"),
        ("primary_measure", "valence", "valence"),
        ("primary_measure", None, "the first of the design"),
    ],
)
def test_values_are_described_in_words(option, value, text):
    (found,) = (row for row in OPTIONS if row.name == option)
    assert isinstance(found, ExperimentOption)
    assert found.describe(value) == text
