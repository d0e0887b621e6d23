"""The questions for itemeval: arguments NUMBER IN_FLIGHT FOLDER. It runs with itemeval's Python, not the project's.

itemeval reads items from a hub that may be unreachable, and uses inspect_ai's default number of connections. This
script sets both.
"""

import contextlib
import functools
import io
import json
import sys
from pathlib import Path
from typing import Any

import inspect_ai
import yaml
from itemeval import cli
from itemeval._item import Item
from itemeval.adapters._base import LoadedDataset
from itemeval.adapters._hf import HFAdapter

n, in_flight, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
items = [
    Item(id=str(at), input=f"What is {at} plus 1?", target=str(at + 1), grading_scheme=None, metadata={})
    for at in range(n)
]


def load(self: Any, spec: Any, mapping: Any, revision: Any) -> Any:
    return LoadedDataset(
        dataset_id=spec.id,
        adapter="hf",
        split=spec.split,
        name=spec.name,
        revision_requested=spec.revision,
        revision=revision,
        items=items,
        cache="reused",
        cache_dir=str(folder),
        download_bytes=None,
    )


HFAdapter.load = load
HFAdapter.resolve_revision = lambda self, spec: "0" * 40
inspect_ai.eval = functools.partial(inspect_ai.eval, max_connections=in_flight, max_samples=in_flight)

study = {
    "study": f"questions-{n}",
    "cache": False,
    "benchmark": {
        "adapter": "hf",
        "datasets": [{"id": "local/questions"}],
        "mapping": {"id": "id", "input": "input", "target": "target"},
    },
    "solvers": {"models": ["openai-api/sim/sim-a"], "max_tokens": 64},
    "facets": {"prompt": ["builtin:minimal"], "scorer": "exact_match"},
    "budget": {"policy": "full-interactive", "batch": False},
}
config = folder / "config.yaml"
config.write_text(yaml.safe_dump(study))
output = io.StringIO()
with contextlib.redirect_stdout(output):
    status = cli.main(["generate", str(config), "-C", str(folder), "--yes", "--force", "--display", "none", "--json"])
(condition,) = json.loads(output.getvalue())["conditions"]
if status or condition["errors"] or condition["rows_written"] != n:
    sys.exit(f"status {status}: {condition['rows_written']} of {n} answers, {condition['errors']} errors")
