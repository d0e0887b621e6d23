"""This copy of Evalsite: a checkout, or an installed package. Where its files are, and how it starts its own modules.

A wheel holds `templates/`, `samples/` and the pages of `docs/` inside the package `evalsite`. A checkout has them
beside it.
"""

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parent  # The checkout, or site-packages.
IS_INSTALLED = (PACKAGE / "templates").is_dir()
COMMAND = "evalsite" if IS_INSTALLED else "manage.py"
COMMIT_FILE = PACKAGE / "commit.txt"  # Written into the sdist and the wheel by hatch_build.py.


def get_shipped_folder(name: str) -> Path:
    """Return the folder `templates`, `samples` or `docs` of this copy."""
    return (PACKAGE if IS_INSTALLED else ROOT) / name


def get_data_dir() -> Path:
    """Return the data folder: EVALSITE_DATA_DIR, or `var` of the checkout, or `var` of the working directory."""
    default = Path("var") if IS_INSTALLED else ROOT / "var"
    return Path(os.environ.get("EVALSITE_DATA_DIR") or default).resolve()


def build_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in a process of its own, with ROOT as the working directory.

    A checkout is importable only from its own folder. An installed package is importable from anywhere, and -P keeps
    Python from searching site-packages before its standard library.
    """
    return [sys.executable, *(["-P"] if IS_INSTALLED else []), "-m", module, *arguments]
