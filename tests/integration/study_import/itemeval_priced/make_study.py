# mypy: ignore-errors
"""Write the study of this folder with itemeval 0.2.0 and models that only pretend to call: no network.

    python make_study.py FOLDER

Run it in an environment of its own that has `itemeval`. What itemeval itself reads in its stores is written to
`readings.json`. The models have names with a list price, so every call has a cost. Cached tokens, reasoning, an empty
answer, a cut answer, a call that is asked again and an unreadable verdict occur.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from inspect_ai.model import ContentReasoning, ContentText, ModelOutput, ModelUsage, get_model
from itemeval import build_status, load_config, prepare_study, run_generate, run_grade
from itemeval._item import Item
from itemeval.adapters._base import LoadedDataset
from itemeval.adapters._hf import HFAdapter
from itemeval.store._gradings import read_gradings
from itemeval.store._ledger import read_ledger
from itemeval.store._solutions import empty_solution_mask, read_solutions

CONFIG = """\
study: capitals
cache: false
benchmark:
  adapter: hf
  datasets:
    - {id: lab/capitals, split: train}
  mapping: {id: id, input: question, target: answer}
solvers:
  models: [openai/gpt-5-mini, anthropic/claude-haiku-4-5]
  max_tokens: 512
facets:
  prompt: [builtin:minimal]
  grader: [judge]
  rubric: [builtin:standard]
  scorer: numeric
  replications: 2
graders:
  judge: {model: anthropic/claude-sonnet-4-5, max_tokens: 512}
budget: {policy: full-interactive, batch: false}
"""
ITEMS = [("oslo", "What is 1 + 1?", "2"), ("rome", "What is 2 + 3?", "5"), ("lima", "What is 4 + 5?", "9")]


def load(self, spec, mapping, revision):
    items = [Item(id=key, input=text, target=target, grading_scheme=None, metadata={}) for key, text, target in ITEMS]
    return LoadedDataset(
        dataset_id=spec.id, adapter="hf", split=spec.split, name=spec.name, revision_requested=None,
        revision=revision, items=items, cache="reused", cache_dir="", download_bytes=None,
    )  # fmt: skip


HFAdapter.resolve_revision = lambda self, spec: "89abcdef" * 5
HFAdapter.load = load


class Replies:
    """The replies of one model, by the number of its call."""

    def __init__(self, model, kind):
        self.model, self.kind, self.calls = model, kind, 0

    def __call__(self, messages, tools, tool_choice, config):
        n = self.calls = self.calls + 1
        usage = {"input_tokens": 100 + 7 * n, "output_tokens": 20 + n, "input_tokens_cache_read": 16 * (n % 3)}
        stop, text = "stop", f"I add the numbers.\nANSWER: {n}"
        if self.kind == "judge":
            text = (
                "I cannot tell."
                if n == 4
                else f'Read.\n\n```json\n{{"score": {n % 11}, "reasoning": "Call {n}."}}\n```'
            )
        elif n == 3:
            raise RuntimeError("the provider is away")  # inspect_ai asks again.
        elif n == 4:
            text = ""
        elif n == 5:
            stop, text = "max_tokens", "I add the"
        if self.model.startswith("openai"):
            usage["reasoning_tokens"] = 5 * n
            content = [ContentReasoning(reasoning=f"Step {n}"), ContentText(text=text)]
        else:
            usage["input_tokens_cache_write"] = 8 * (n % 2)
            content = text
        output = ModelOutput.from_content(model=self.model, content=content, stop_reason=stop)
        output.usage = ModelUsage(total_tokens=sum(usage.values()) - usage.get("reasoning_tokens", 0), **usage)
        return output


def make_factory():
    replies = {}

    def make(model, stage, model_args=None):
        name = model if isinstance(model, str) else model.name
        key = name, stage
        replies.setdefault(key, Replies(name, "judge" if stage == "grade" else "solver"))
        return get_model(f"mockllm/{name}", custom_outputs=replies[key], memoize=False)

    return make


def read_sums(rows, columns):
    return {name: None if rows[name].isna().all() else float(rows[name].sum()) for name in columns}


TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "usd")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG)
    os.chdir(folder)
    config = load_config("config.yaml")
    factory = make_factory()
    prep = prepare_study(config)
    run_generate(prep, model_factory=factory)
    run_grade(prepare_study(config), model_factory=factory)
    run_generate(prepare_study(config), model_factory=factory, wave="again")
    run_grade(prepare_study(config), model_factory=factory, wave="again")
    solutions, gradings, ledger = (read(prep.paths) for read in (read_solutions, read_gradings, read_ledger))
    status = build_status(config).model_dump()
    judged = gradings[gradings["grade_kind"] != "verifiable"]
    readings = {
        "solutions": len(solutions),
        "errors": int(solutions["error"].notna().sum()),
        "empty": int(empty_solution_mask(solutions).sum()),
        "by_model": {
            model: {"rows": len(rows), "errors": int(rows["error"].notna().sum()), **read_sums(rows, TOKENS)}
            for model, rows in solutions.groupby("model")
        },
        "gradings": {kind: len(rows) for kind, rows in gradings.groupby("grade_kind")},
        "score_sums": {kind: float(rows["score"].sum()) for kind, rows in gradings.groupby("grade_kind")},
        "unreadable": {kind: int((~rows["parse_ok"]).sum()) for kind, rows in gradings.groupby("grade_kind")},
        "judge": read_sums(judged, TOKENS),
        "ledger": {
            stage: {"calls": int(rows["calls"].sum()), "usd": float(rows["usd"].sum())}
            for stage, rows in ledger.groupby("stage")
        },
        "status": {name: status[name] for name in ("spend_generate_usd", "spend_grade_usd", "waves")},
    }
    (folder / "readings.json").write_text(json.dumps(readings, indent=1, sort_keys=True) + "\n")
    for path in folder.glob("studies/capitals/manifests/*.json"):
        path.write_text(path.read_text().replace(str(folder), "."))
    shutil.rmtree(folder / "studies/capitals/logs", ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
