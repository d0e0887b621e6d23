"""The build's own step: it records the commit of the code in the sdist and in the wheel."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT_FILE = "evalsite/commit.txt"  # evalsite/lib/ops/installation.py reads it.


class RecordCommit(BuildHookInterface):
    """Adds a file with the commit of the checkout. A wheel that is built from an sdist gets the sdist's file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # Runs from the checkout, whose commit changes.
        file = Path(self.root) / COMMIT_FILE
        if not file.exists():
            commit = read_commit(Path(self.root))
            if not commit:
                return
            self.folder = tempfile.TemporaryDirectory()
            file = Path(self.folder.name) / file.name
            file.write_text(f"{commit}\n")
        build_data["force_include"][str(file)] = COMMIT_FILE


def read_commit(checkout: Path) -> str:
    """Return the commit, with "-dirty" if tracked files were changed since; "" outside a git repository."""
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
