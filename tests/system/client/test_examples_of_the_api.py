"""The examples in docs/api.md and in the client's README run, and print what they promise."""

import json
import os
import re
import subprocess

import pytest

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
    for example in list_examples(document, "python"):
        run_program(example, packages=True)
