#!/bin/sh
# Write the logs of this folder with evals 3.0.1.post1 against this project's simulated provider: no network but loopback.
#
#     manage.py simulate_provider --port 8130 --seed 3 &
#     sh make_logs.sh FOLDER
set -eu
cd "$(dirname "$0")"
export OPENAI_API_KEY=none OPENAI_BASE_URL=http://127.0.0.1:8130/v1 EVALS_THREADS=1
for eval in capitals capitals-graded; do
    # The tool fails while it adds up the tokens of a run, after it has written the log.
    oaieval gpt-3.5-turbo "$eval" --registry_path registry --record_path "$1/$eval.jsonl" || true
done
