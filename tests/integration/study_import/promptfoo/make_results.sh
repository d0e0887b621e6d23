#!/bin/sh
# Write results.json with promptfoo 0.121.20 against this project's simulated provider: no network but loopback.
#
#     manage.py simulate_provider --port 8130 --seed 3 &
#     sh make_results.sh FOLDER
#
# Headers of replies and facts about the machine are removed.
set -eu
cd "$(dirname "$0")"
PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1 PROMPTFOO_CONFIG_DIR="$1" \
    promptfoo eval -c promptfooconfig.yaml --repeat 2 --no-cache --no-table --no-write -j 2 -o "$1/all.json" || true
python - "$1" <<'PYTHON'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
content = json.loads((folder / "all.json").read_text())
for row in content["results"]["results"]:
    row.pop("metadata", None)
    (row.get("response") or {}).pop("metadata", None)
for name in ("runtimeOptions", "vars"):
    content.pop(name, None)
(folder / "results.json").write_text(json.dumps(content) + "\n")
PYTHON
