"""Recipes, carried out on a copy: the steps for a scorer, a page and an option suffice, and tests name missing ones."""

import os
import shutil
import subprocess
import sys

import pytest

from evalsite.lib.ops.installation import ROOT
from tests.system.postgres.conftest import ROOT as CHECKOUT

pytestmark = [pytest.mark.slow, pytest.mark.processes]
PARTS = ("evalsite", "datasets_app", "runs_app", "grading_app", "templates", "samples", "tests", "docs", "benchmarks")
FILES = ("manage.py", "pyproject.toml", "CONTRIBUTING.md", "README.md")


class Copy:
    """A copy of the checkout that a recipe changes."""

    def __init__(self, folder):
        self.folder = folder / "checkout"
        self.folder.mkdir()
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc", "studies", "logs")
        for part in PARTS:
            shutil.copytree(CHECKOUT / part, self.folder / part, ignore=skipped)
        for name in FILES:
            shutil.copy(CHECKOUT / name, self.folder)

    def add(self, path, text):
        (self.folder / path).write_text(text)

    def change(self, path, old, new):
        file = self.folder / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path} has {text.count(old)} times: {old}"
        file.write_text(text.replace(old, new))

    def run(self, *arguments, **variables):
        """Run Python in the copy, and return its exit code and output. variables: of its environment."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {
            "EVALSITE_DATA_DIR": str(self.folder / "var"),
            "DATABASE_URL": "postgresql:///unused",
            **variables,
        }
        process = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        return process.returncode, process.stdout + process.stderr

    def test(self, *tests, **variables):
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests, **variables)


@pytest.fixture
def checkout(tmp_path):
    assert ROOT == CHECKOUT
    return Copy(tmp_path)


SCORER = '''

@register_scorer(
    "similarity", "Similarity", "the answer is like the target", declare_number("threshold", ge=0, le=1, default=0.8)
)
def similarity(answer: ScoredAnswer, item: ScoredItem, parameters: Parameters) -> Score:
    """Return 1 if the share of the target's words that the answer has reaches the threshold, else 0."""
    words = set(item.target.split())
    if not words:
        return _make_unreadable_score("empty_target")
    share = len(words & set(answer.text.split())) / len(words)
    return _make_score(share >= parameters["threshold"], f"{share:.2f}")
'''
USE_SCORER = """
from runs_app.scorers.scoring_rules import list_scorers_with_parameter, read_rule
from runs_app.scorers.scorers import ScoredAnswer, ScoredItem, ScorerError
rule = read_rule({"name": "similarity", "threshold": 0.5})
assert rule.stored == {"name": "similarity", "threshold": "0.5"}, rule.stored
assert rule.score(ScoredAnswer("a b"), ScoredItem("a b c d")).value == 1
assert "similarity:THRESHOLD" in dict(list_scorers_with_parameter())
try:
    read_rule("similarity:banana")
except ScorerError as error:
    print(error)
"""


def test_a_scorer_with_a_parameter_is_one_function_and_its_documents(checkout):
    with (checkout.folder / "runs_app/scorers/scorers.py").open("a") as module:
        module.write(SCORER)
    code, output = checkout.run("manage.py", "shell", "--no-imports", "-c", USE_SCORER)
    assert code == 0, output
    assert "The threshold of the scorer similarity must be a number from 0 to 1, not 'banana'." in output
    code, output = checkout.test("tests/unit/test_scoring.py", "tests/unit/docs/test_recipes.py")
    assert code == 0, output


VIEW = '''"""A page with one sentence."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import members_only


@require_safe
@members_only
def glossary(request: HttpRequest) -> HttpResponse:
    return render(request, "runs_app/glossary.html")
'''
PAGE = '{% extends "base.html" %}\n{% block content %}<h1>Glossary</h1>{% endblock %}\n'
LINKS, ROWS = "tests/unit/test_every_address_is_linked.py", "tests/integration/pages/test_access_matrix.py"


def test_a_page_needs_a_view_an_address_a_link_and_a_row_and_tests_name_the_missing_ones(checkout):
    checkout.add("runs_app/views/glossary.py", VIEW)
    checkout.change(
        "runs_app/urls.py", "urlpatterns = [\n", 'urlpatterns = [\n    path("glossary/", glossary, name="glossary"),\n'
    )
    checkout.change(
        "runs_app/urls.py", "\nurlpatterns", "\nfrom runs_app.views.glossary import glossary\n\nurlpatterns"
    )
    checkout.add("templates/runs_app/glossary.html", PAGE)
    code, output = checkout.test(LINKS)
    assert code == 1, output
    assert "add a link" in output
    assert "glossary" in output
    row = f"{ROWS}::test_every_address_has_a_row"
    code, output = checkout.test(row)
    assert code == 1, output
    assert "who may open it?" in output
    link = '<a href="{% url "glossary" %}">Glossary</a>\n{% endblock content %}'
    checkout.change("templates/home.html", "{% endblock content %}", link)
    checkout.change(ROWS, "MATRIX = {\n", 'MATRIX = {\n    "glossary": MEMBERS,\n')
    code, output = checkout.test(LINKS, row)
    assert code == 0, output


OPTION = """    ExperimentOption(
        name="pause_s",
        group=EXECUTION,
        kind=float,
        default=0,
        bound=Bound(0, 60, "seconds"),
        label="Pause",
        help="Seconds between two calls",
        docs="seconds between two calls",
        fact="{} s",
        changes=True,
        metavar="SECONDS",
    ),
"""
USE_OPTION = """
import argparse
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.experiment_files.spec_reader import read_yaml
from grading_app.forms.experiments import ExperimentForm
from runs_app.forms.experiments import LaunchedExperimentForm
from runs_app.management.experiment_verbs import _add_settings
from runs_app.models import Experiment
from grading_app.publish.report.build import TEXTS_AND_SETTINGS

design = "{experiment: e, dataset: d, models: [m], prompts: [p], pause_s: %s}"
assert read_yaml(design % 2.5).pause_s == 2.5
try:
    read_yaml(design % 61)
except SpecError as error:
    print(error)
for form in (ExperimentForm, LaunchedExperimentForm):
    field = form.base_fields["pause_s"]
    assert (field.label, field.help_text) == ("Pause", "Seconds between two calls"), vars(field)
parser = argparse.ArgumentParser()
_add_settings(parser)
assert parser.parse_args(["--pause-s", "3"]).pause_s == 3
assert ("Pause", "4 s") in Experiment(pause_s=4).describe_options()
assert "pause_s" in TEXTS_AND_SETTINGS
"""


def test_an_option_is_a_declaration_and_a_column_and_a_test_writes_its_document(checkout):
    checkout.change("runs_app/experiment_options.py", ")\nNAMES = ", OPTION + ")\nNAMES = ")
    checkout.change(
        "runs_app/models/experiments.py",
        "    lease_s = models",
        '    pause_s = models.FloatField(**describe_column("pause_s"))\n    lease_s = models',
    )
    code, output = checkout.run("manage.py", "makemigrations", "runs_app", "--name", "pause")
    assert code == 0, output
    assert "Add field pause_s to experiment" in output
    code, output = checkout.run("manage.py", "shell", "--no-imports", "-c", USE_OPTION)
    assert code == 0, output
    assert "pause_s: must be between 0 and 60 seconds" in output
    code, output = checkout.test("tests/unit/test_options_are_declared_once.py")
    assert code == 1, output
    assert (
        "- `pause_s` (default `0`; 0 to 60 seconds; can change after the launch): seconds between two calls" in output
    )
