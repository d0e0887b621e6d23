import io
from dataclasses import dataclass

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from runs_app.models import Experiment
from tests.factories import make_endpoint, make_user
from tests.factories.drafts import make_questions

PRICED = (
    "model", "set", "sim", "--price-source", "a list", "--input-price", "1", "--output-price", "2",
    "--max-output-tokens", "50",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def manage(db):
    """Run a command line like manage.py. Return the exit code and the output; `err` has the error message."""

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        try:
            call_command(*map(str, words), stdout=out, stderr=err)
        except CommandError as error:
            return Outcome(error.returncode, out.getvalue(), err.getvalue() + str(error))
        except SystemExit as end:
            return Outcome(int(end.code or 0), out.getvalue(), err.getvalue())
        return Outcome(0, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def operator(db):
    return make_user("root", superuser=True)


@pytest.fixture
def lab(operator):
    make_endpoint("rehearsal")
    make_questions(2, slug="questions")


@pytest.fixture
def design(tmp_path):
    """Write an experiment file, and return its path."""

    def write(name="pilot", *, samplers="[{name: greedy, temperature: 0, max_tokens: 100}]", extra=""):
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"experiment: {name}\ndataset: questions@1\n"
            "models: [{name: sim, endpoint: rehearsal, model: sim}]\n"
            'prompts: [{name: plain, user: "{{input}}"}]\n'
            f"samplers: {samplers}\n{extra}\n"
        )
        return path

    return write


@pytest.fixture
def launched_experiment(manage, lab, design):
    for command in (("experiment", "create", design()), PRICED, ("experiment", "launch", "pilot", "--yes")):
        result = manage(*command)
        assert result.code == 0, result.err
    return Experiment.objects.get()
