import io
from dataclasses import dataclass
from functools import partial

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from runs_app.models import Experiment
from tests.factories import make_endpoint, make_user
from tests.factories.drafts import make_questions
from tests.shared_rows import shared_rows

PRICED = (
    "model", "set", "sim", "--price-source", "a list", "--input-price", "1", "--output-price", "2",
    "--max-output-tokens", "50",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run_command(*words):
    """Run a command line like manage.py. Return the exit code and the output; `err` has the error message."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*map(str, words), stdout=out, stderr=err)
    except CommandError as error:
        return Outcome(error.returncode, out.getvalue(), err.getvalue() + str(error))
    except SystemExit as end:
        return Outcome(int(end.code or 0), out.getvalue(), err.getvalue())
    return Outcome(0, out.getvalue(), err.getvalue())


@pytest.fixture
def manage(db):
    return run_command


@shared_rows
def operator():
    return make_user("root", superuser=True)


@shared_rows
def lab(operator_of_file):
    make_lab()


def make_lab():
    make_endpoint("rehearsal")
    make_questions(2, slug="questions")


def write_design(folder, name="pilot", *, samplers="[{name: greedy, temperature: 0, max_tokens: 100}]", extra=""):
    """Write an experiment file, and return its path."""
    path = folder / f"{name}.yaml"
    path.write_text(
        f"experiment: {name}\ndataset: questions@1\n"
        "models: [{name: sim, endpoint: rehearsal, model: sim}]\n"
        'prompts: [{name: plain, user: "{{input}}"}]\n'
        f"samplers: {samplers}\n{extra}\n"
    )
    return path


@pytest.fixture
def design(tmp_path):
    return partial(write_design, tmp_path)


@shared_rows
def launched_experiment(lab_of_file, tmp_path_factory):
    return launch_pilot(tmp_path_factory.mktemp("pilot"))


def create_pilot(folder, **fields):
    """Create an experiment with prices from a file in this folder."""
    for command in (("experiment", "create", write_design(folder, **fields)), PRICED):
        result = run_command(*command)
        assert result.code == 0, result.err
    return Experiment.objects.get()


def launch_pilot(folder, **fields):
    create_pilot(folder, **fields)
    result = run_command("experiment", "launch", "pilot", "--yes")
    assert result.code == 0, result.err
    return Experiment.objects.get()
