#!/bin/sh
# Write runs.zip with crfm-helm 0.5.16 and its model `simple/model1`, which makes no calls.
#
#     sh make_runs.sh FOLDER
set -eu
helm-run --run-entries simple1:model=simple/model1 simple_mcqa:model=simple/model1 --suite v1 \
    --max-eval-instances 3 -o "$1"
cd "$1/runs"
zip -r "$1/runs.zip" v1 -i "*/run_spec.json" "*/scenario_state.json" "*/per_instance_stats.json" "*/stats.json"
