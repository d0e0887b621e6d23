"""Real recorded answers, replayed over HTTP, reproduce published results."""

import asyncio
import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runs_app.simulator import SimulatorConfig
from tests.integration.simulator.http_client import Client, Response, run_with_simulator

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
SOLUTIONS = DATA / "gsm8k-model-solutions.jsonl"
RATINGS = {"gemma": DATA / "uniform40-trials-gemma.csv", "qwen": DATA / "uniform40-trials-qwen.csv"}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def ask_all(client: Client, questions: list[tuple[str, str, int | None]], in_flight: int = 32) -> list[Response]:
    """Return the responses to each (text, model, seed), in order."""
    gate = asyncio.Semaphore(in_flight)

    async def ask(text: str, model: str, seed: int | None) -> Response:
        async with gate:
            return await client.ask(text, model, **({} if seed is None else {"seed": seed}))

    return list(await asyncio.gather(*(ask(*one) for one in questions)))


def read_last_number(text: str) -> float | None:
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(numbers[-1].replace(",", "")) if numbers else None


@pytest.mark.slow
@pytest.mark.skipif(not SOLUTIONS.exists(), reason="the recorded solutions are not beside this checkout")
@pytest.mark.parametrize(("model", "right"), [("6b_finetuning", 286), ("6b_verification", 515)])
def test_recorded_solutions_have_the_published_accuracy(tmp_path: Path, model: str, right: int) -> None:
    problems = [json.loads(line) for line in SOLUTIONS.read_text().splitlines()]
    rows = [
        {"model": name, "text": problem["question"], "content": problem[name]["solution"]}
        for problem in problems
        for name in ("6b_finetuning", "6b_verification")
    ]
    replay = write_rows(tmp_path / "replay.jsonl", rows)
    questions = [(f"Solve this.\n\n{problem['question']}\n\nEnd with the number.", model, None) for problem in problems]

    async def scene(client: Client) -> int:
        responses = await ask_all(client, questions)
        targets = [read_last_number(problem["ground_truth"]) for problem in problems]
        return sum(read_last_number(one.content) == target for one, target in zip(responses, targets, strict=True))

    assert run_with_simulator(SimulatorConfig(replays=(replay,)), scene) == right


@pytest.mark.slow
@pytest.mark.skipif(
    not all(path.exists() for path in RATINGS.values()), reason="the trials are not beside this checkout"
)
@pytest.mark.parametrize(("name", "refused"), [("gemma", 0), ("qwen", 40)])
def test_recorded_trials_are_replayed_by_text_and_seed(tmp_path: Path, name: str, refused: int) -> None:
    with RATINGS[name].open(newline="") as lines:
        trials = list(csv.DictReader(lines))
    replay = write_rows(tmp_path / "replay.jsonl", [build_row(trial) for trial in trials])
    questions = [
        (f"Look at it.\n{describe_subject(trial)}\nRate it.", f"lab/{trial['model']}", int(trial["sample_idx"]))
        for trial in trials
    ]

    async def scene(client: Client) -> None:
        responses = await ask_all(client, questions)
        assert Counter(response.status for response in responses)[400] == refused
        for trial, response in zip(trials, responses, strict=True):
            if response.status == 200:
                assert response.content == trial["raw_response"]
                assert response.body["usage"]["prompt_tokens"] == int(trial["input_tokens"])
        assert (await client.counters())["repeated_bodies"] == 0

    assert len(trials) == 1600
    run_with_simulator(SimulatorConfig(replays=(replay,)), scene)


def describe_subject(trial: dict[str, str]) -> str:
    return f"Image: {trial['image_id']}, {trial['dimension']}"


def build_row(trial: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"model": trial["model"], "text": describe_subject(trial), "seed": int(trial["sample_idx"])}
    if trial["status"] != "done":
        return row | {"status": 400, "error": trial["error"]}
    tokens = {"prompt_tokens": int(trial["input_tokens"]), "completion_tokens": int(trial["output_tokens"])}
    usage = {**tokens, "total_tokens": sum(tokens.values())}
    return row | {"content": trial["raw_response"], "finish_reason": trial["finish_reason"], "usage": usage}
