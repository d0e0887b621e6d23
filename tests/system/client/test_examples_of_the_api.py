"""The examples in docs/api.md and in the client's README run, and print what they promise."""

import json
import os
import re
import subprocess
import urllib.request

import pytest

from runs_app.models import Endpoint, Experiment, Trial
from tests.factories.model_server import model_server
from tests.factories.tokens import make_token
from tests.system.postgres.conftest import ROOT

pytestmark = pytest.mark.processes


def list_examples(document, language):
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_shell_example_runs(site, tmp_path):
    examples = list_examples("docs/api.md", "sh")
    assert len(examples) >= 5
    for example in examples:
        variables = {"PATH": os.environ["PATH"], **site}
        command = ["bash", "-e", "-o", "pipefail", "-c", example.replace("pilot/estimate", "draft/estimate")]
        command[-1] = command[-1].replace("pilot/launch", "draft/launch")
        process = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
        assert process.returncode == 0, example + process.stderr
        decoder, rest = json.JSONDecoder(), process.stdout.strip()
        while rest:
            _, end = decoder.raw_decode(rest)
            rest = rest[end:].strip()
    assert (tmp_path / "trials.parquet").read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize("document", ["docs/api.md", "client/README.md"])
def test_every_python_example_runs(document, run_program):
    examples = [example for example in list_examples(document, "python") if "/gateway/" not in example]
    assert examples
    for example in examples:
        run_program(example, packages=True)


@pytest.mark.parametrize("language", ["r", "julia"])
def test_the_examples_in_other_languages_ask_for_a_table_that_the_site_has(site, language):
    (example,) = list_examples("docs/api.md", language)
    (path,) = re.findall(r"/api/v1/[\w./-]+", example)
    assert all(name in example for name in site)
    assert "Bearer" in example or "bearer" in example
    headers = {"Authorization": f"Bearer {site['EVALSITE_TOKEN']}"}
    request = urllib.request.Request(site["EVALSITE_URL"] + path, headers=headers)  # noqa: S310 - our own site
    with urllib.request.urlopen(request) as response:  # noqa: S310 - as above
        assert response.read().startswith(b"PAR1")


def test_the_example_of_the_gateway_runs(site, run_program, monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.KEPT_S", 0)
    monkeypatch.setenv("EVALSITE_KEY_TESTS", "sk-the-labs-own-key")
    pilot = Experiment.objects.get(slug="pilot")
    (example,) = (example for example in list_examples("docs/api.md", "python") if "/gateway/" in example)
    code = example.replace("https://lab.example", site["EVALSITE_URL"])
    with model_server() as (url, server):
        Endpoint.objects.update(base_url=f"{url}/v1", key_env="EVALSITE_KEY_TESTS")
        token = make_token(pilot.owner, "run", experiment=pilot)[1]
        run_program(f"token = {token!r}\n{code}", packages=True)
        assert len(server.requests) == 1
    assert Trial.objects.get(run__condition__stage="external").answer == "echo: Hello"
