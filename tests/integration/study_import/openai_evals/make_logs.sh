#!/bin/sh
# Write the logs of this folder with evals 3.0.1.post1 against this project's simulated provider: no network but loopback.
#
# The package's requirements do not install together. A run needs only these:
#
#     python3.11 -m venv oai && oai/bin/pip install --no-deps evals==3.0.1.post1
#     oai/bin/pip install openai==2.54.0 aiolimiter backoff beartype blobfile dacite filelock lz4 mock numpy \
#         pandas pydantic pyyaml snowflake-connector-python termcolor tiktoken tqdm zstandard
#     manage.py simulate_provider --port 8130 --seed 3 &
#     PATH=oai/bin:$PATH sh make_logs.sh FOLDER
set -eu
cd "$(dirname "$0")"
export OPENAI_API_KEY=none OPENAI_BASE_URL=http://127.0.0.1:8130/v1 EVALS_THREADS=1
for eval in capitals capitals-graded; do
    # The tool fails while it adds up the tokens of a run, after it has written the log: no final report.
    oaieval gpt-3.5-turbo "$eval" --registry_path registry --record_path "$1/$eval.jsonl" || true
done
# The tool's own model: its log has a final report, and no prompts.
oaieval dummy capitals --registry_path registry --record_path "$1/dummy.jsonl"
