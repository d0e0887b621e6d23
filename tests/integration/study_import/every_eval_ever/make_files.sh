#!/bin/sh
# Write the files of this folder with every-eval-ever 0.3.0, which converts the results beside it in lm_eval/.
#
#     sh make_files.sh FOLDER
set -eu
every_eval_ever convert lm_eval --log_path "$(dirname "$0")/../lm_eval/results_2026-11-25T12-00-00.000000.json" \
    --include_samples --output_dir "$1" --source_organization_name Lab --evaluator_relationship third_party
