"""A reader can type a document from its first block to its last on a fresh site, and each command does what it says."""

import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass

import pytest

from evalsite.lib.ops.installation import ROOT
from tests.prepared_database import build_environment
from tests.system.postgres.conftest import open_folder
from tests.system.up.conftest import MANAGE, find_processes, free_port

pytestmark = [pytest.mark.slow, pytest.mark.processes]

BLOCK = re.compile(r"(?:^`(?P<file>[\w.-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```\w", re.MULTILINE)
PORT = "8166"


@dataclass(frozen=True)
class Block:
    """A block of a document: commands to type, or a file to save."""

    file: str
    kind: str
    text: str


def read_blocks(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = [Block(match["file"] or "", match["kind"], match["text"]) for match in BLOCK.finditer(text)]
    assert len(blocks) == len(FENCE.findall(text))
    return blocks


def write_script(blocks, port):
    """Return a script that saves the files and types the commands, and stops at the first that fails."""
    lines = ["set -eu -o pipefail", f'evalsite() {{ {shlex.join(MANAGE)} "$@"; }}']
    for number, block in enumerate(blocks):
        text = block.text.replace(PORT, str(port))
        if block.file:
            lines.append(f"cat > {block.file} <<'END-OF-FILE'\n{text}END-OF-FILE")
        else:
            assert block.kind == "sh", "a block is a file with a name, or commands"
            lines.append(f"echo '== block {number}'\n{text}")
    return "\n".join(lines)


def type_document(page, place):
    script = write_script(read_blocks(page), free_port())
    log = place / "typed.log"
    with log.open("w") as out:
        environment = build_environment(place)
        done = subprocess.run(
            ["/bin/bash", "-c", script], cwd=place, env=environment, stdout=out, stderr=out, timeout=1_200, check=False
        )
    assert done.returncode == 0, log.read_text()
    return log.read_text()


@pytest.fixture
def place():
    with open_folder() as folder:
        yield folder
        for pid in find_processes(folder):
            os.kill(pid, signal.SIGKILL)


def test_a_study_by_command_can_be_typed(place):
    log = type_document("first-study.md", place)
    assert "Traceback" not in log
    for name in ("trials.csv", "pilot.html", "figures.pdf"):
        assert (place / name).stat().st_size > 500
        assert re.search(rf"Wrote .*{re.escape(name)}", log), name
    assert len((place / "trials.csv").read_text().splitlines()) == 1 + 2 * 4 * 5 * 2
