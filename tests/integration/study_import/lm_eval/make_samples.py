# mypy: ignore-errors
"""Write the results of this folder's tests with lm_eval 0.4.13 and its model `dummy`: no network.

    python make_samples.py FOLDER

Run it in an environment of its own that has `lm_eval` and `datasets`. Facts about the machine are removed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SUMS = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
num_fewshot: 0
repeats: 2
generation_kwargs: {{until: ["\\n"], temperature: 0.5, do_sample: true, max_gen_toks: 64}}
filter_list:
  - name: strict-match
    filter: [{{function: regex, regex_pattern: "(\\\\d+)"}}, {{function: take_first}}]
  - name: flexible
    filter: [{{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""
COLOURS = """\
task: colours
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/colours.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{options}}}}"
doc_to_target: "{{{{gold}}}}"
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata: {{version: 2.0}}
"""
MACHINE = (
    "pretty_env_info",
    "git_hash",
    "transformers_version",
    "start_time",
    "end_time",
    "total_evaluation_time_seconds",
)


def main(folder):
    folder.mkdir(exist_ok=True)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    sums = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(3)]
    colours = [
        {"question": f"The colour of {thing} is", "options": ["red", "blue", "green"], "gold": gold}
        for thing, gold in (("blood", 0), ("the sky", 1), ("grass", 2), ("a cherry", 0))
    ]
    for name, rows, task in (("sums", sums, SUMS), ("colours", colours, COLOURS)):
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (work / f"{name}.yaml").write_text(task.format(folder=work))
    subprocess.run(
        [
            Path(sys.executable).parent / "lm_eval", "--model", "dummy", "--model_args", "model=lab/dummy-1",
            "--tasks", "sums,colours", "--include_path", work,
            "--output_path", work / "out", "--log_samples", "--seed", "7",
        ],
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(work / "cache")},
    )  # fmt: skip
    for file in (work / "out").rglob("*.json*"):
        text = file.read_text().replace(f"{work}/", "")
        if file.suffix == ".json":
            content = {name: value for name, value in json.loads(text).items() if name not in MACHINE}
            text = json.dumps(content, indent=1) + "\n"
        (folder / re.sub(r"\d{4}-\d\d-\d\dT[\d-]+\.\d+", "2026-11-25T12-00-00.000000", file.name)).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
