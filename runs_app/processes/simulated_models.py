"""The simulated models of a data folder: `demo` stores their options, and every site of the folder serves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from evalsite.lib.ops.installation import ROOT, build_module_command
from evalsite.lib.ops.supervisor import Child
from runs_app.simulator import SimulatorConfig
from runs_app.simulator.options import build_arguments


def store_simulated_models(config: SimulatorConfig) -> None:
    path = _find_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(build_arguments(config)))


def build_simulated_models(may_start: Callable[[], bool]) -> list[Child]:
    """Return the process of the stored simulated models, or no process if there are none.

    The site works without them. It does not stop if they cannot start, for example because their port is in use.
    """
    path = _find_file()
    if not path.exists():
        return []
    command = build_module_command("runs_app.simulator", *json.loads(path.read_text()))
    return [Child("models", command, directory=ROOT, is_required=False, may_start=may_start)]


def _find_file() -> Path:
    return Path(settings.DATA_DIR) / "demo" / "models.json"
