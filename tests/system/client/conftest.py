"""A site over real HTTP, and an environment outside the checkout with the wheel of the client."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team
from tests.factories.tokens import make_token
from tests.system.postgres.conftest import ROOT, open_folder


def run(*command, **options):
    process = subprocess.run(command, capture_output=True, text=True, **options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="session")
def client_python():
    """Return the interpreter of an environment with the wheel alone."""
    with open_folder() as folder:
        build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder / "dist")
        run(*build, ROOT / "client")
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        pip = (sys.executable, "-m", "pip", "--python", folder / "venv/bin/python")
        (wheel,) = (folder / "dist").glob("*.whl")
        run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
        yield folder / "venv/bin/python"


@pytest.fixture
def site(live_server, transactional_db):
    """Return the variables of a program that uses the site as the owner of the experiments pilot and draft."""
    owner = make_team().owner
    pilot = make_answered_experiment("pilot", items=4, models=("small", "large"), owner=owner)
    make_gradings(pilot, "exact", lambda trial: trial.item.position % 2, kind="rule")
    factories.make_experiment("draft", owner=owner, models=[factories.make_model("tiny", max_output_tokens=100)])
    return {"EVALSITE_URL": live_server.url, "EVALSITE_TOKEN": make_token(owner, "run")[1]}


@pytest.fixture
def run_program(client_python, site, tmp_path):
    """Return a function that runs Python code outside the checkout and returns what it prints."""

    def run_code(code, *, packages=False):
        variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **site}
        if packages:
            variables["PYTHONPATH"] = sysconfig.get_path("purelib")
        return run(client_python, "-c", code, cwd=Path(tmp_path), env=variables, timeout=300)

    return run_code
