"""Lookup of recorded answers: by the most specific row, in file order, with an index."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.simulator import SimulatorConfig
from runs_app.simulator.config import ConfigError
from runs_app.simulator.known_answers import Haystack, Recordings, TextIndex
from runs_app.simulator.request_parser import read_chat
from tests.integration.simulator.http_client import IMAGE, IMAGE_SHA, Client, make_question, run_with_simulator


def make_recordings(*rows: dict[str, Any]) -> Recordings:
    recordings = Recordings()
    for row in rows:
        recordings.add(row)
    return recordings


def find_content(recordings: Recordings, text: str, model: str = "sim/a", **more: Any) -> str | None:
    recording = recordings.find(read_chat(json.dumps(make_question(text, model, **more)).encode()))
    return None if recording is None else recording.content


def hash_image(number: int) -> str:
    return hashlib.sha256(f"image {number}".encode()).hexdigest()


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_most_specific_row_wins_in_any_order() -> None:
    rows = (
        {"content": "anything"},
        {"model": "sim/a", "content": "model"},
        {"model": "sim/a", "text": "valence", "content": "model and text"},
        {"model": "sim/a", "text": "valence", "image": IMAGE_SHA, "content": "model, text and image"},
        {"model": "sim/a", "text": "valence", "image": IMAGE_SHA, "seed": 7, "content": "all four"},
    )
    for recordings in (make_recordings(*rows), make_recordings(*reversed(rows))):
        assert find_content(recordings, "Rate the valence.", image=IMAGE, seed=7) == "all four"
        assert find_content(recordings, "Rate the valence.", image=IMAGE, seed=8) == "model, text and image"
        assert find_content(recordings, "Rate the valence.", image=b"another") == "model and text"
        assert find_content(recordings, "Rate the arousal.") == "model"
        assert find_content(recordings, "Rate the valence.", "sim/b") == "anything"


def test_an_image_takes_precedence_over_a_text_and_a_text_over_a_seed() -> None:
    recordings = make_recordings(
        {"seed": 7, "content": "seed"}, {"text": "valence", "content": "text"}, {"image": IMAGE_SHA, "content": "image"}
    )
    assert find_content(recordings, "valence", image=IMAGE, seed=7) == "image"
    assert find_content(recordings, "valence", seed=7) == "text"
    assert find_content(recordings, "arousal", seed=7) == "seed"


def test_the_longest_text_wins_and_a_whole_line_takes_precedence_over_a_part() -> None:
    recordings = make_recordings(
        {"text": "apples", "content": "short"},
        {"text": "How many apples?", "content": "long"},
        {"text": "pears", "content": "line"},
    )
    assert find_content(recordings, "Ann has some. How many apples? Say.") == "long"
    assert find_content(recordings, "Ann has apples.") == "short"
    assert find_content(recordings, "Ann has apples.\npears\n") == "line"


@pytest.mark.parametrize(("row", "requested"), [("openai/gpt-x", "gpt-x"), ("gpt-x", "openai/gpt-x"), ("a/b/c", "b/c")])
def test_a_model_matches_with_and_without_its_provider(row: str, requested: str) -> None:
    recordings = make_recordings({"model": row, "content": "found"})
    assert find_content(recordings, "x", requested) == "found"
    assert find_content(recordings, "x", "another") is None


def test_rows_with_equal_keys_are_replayed_in_file_order_and_the_last_repeats() -> None:
    recordings = make_recordings(*({"text": "question", "content": word} for word in ("one", "two", "three")))
    assert [find_content(recordings, "question") for _ in range(5)] == ["one", "two", "three", "three", "three"]
    recordings.restart()
    assert find_content(recordings, "question") == "one"


def test_a_request_without_a_recorded_answer_gets_a_404_with_a_message(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "replay.jsonl", {"text": "known", "content": "yes"})

    async def scene(client: Client) -> None:
        assert (await client.ask("This is known.")).content == "yes"
        missing = await client.ask("What else?")
        assert missing.status == 404
        assert missing.body["error"]["message"] == "no recorded answer"

    run_with_simulator(SimulatorConfig(replays=(path,)), scene)


def test_a_row_sets_status_finish_reason_usage_and_latency(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 511, "completion_tokens": 40, "total_tokens": 551, "cost": 8.754e-05}
    path = write_rows(
        tmp_path / "replay.jsonl",
        {"text": "cut short", "content": "half", "finish_reason": "length", "usage": usage, "latency_ms": 200},
        {"text": "refused", "status": 400, "error": "Provider returned error: data_inspection_failed"},
    )

    async def scene(client: Client) -> None:
        started = time.perf_counter()
        response = await client.ask("cut short")
        assert time.perf_counter() - started >= 0.2
        assert response.choice["finish_reason"] == "length"
        assert response.body["usage"] == usage
        refused_response = await client.ask("refused")
        assert refused_response.status == 400
        assert "data_inspection_failed" in refused_response.body["error"]["message"]

    run_with_simulator(SimulatorConfig(replays=(path,)), scene)


def test_a_fault_does_not_use_up_a_recorded_answer(tmp_path: Path) -> None:
    rows = [{"text": "question", "content": word} for word in ("one", "two")]

    async def scene(client: Client) -> None:
        await client.post("/faults", {"errors": "500=1"})
        assert (await client.ask("question")).status == 500
        await client.post("/faults", {"errors": ""})
        assert (await client.ask("question")).content == "one"
        assert (await client.ask("question")).content == "two"
        await client.post("/counters/reset", {})
        assert (await client.ask("question")).content == "one"

    run_with_simulator(SimulatorConfig(replays=(write_rows(tmp_path / "replay.jsonl", *rows),)), scene)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"contents": "x"}', "contents"),
        ('{"text": "x"}', "content"),
        ('{"text": "  ", "content": "x"}', "blank"),
        ('{"status": 302, "content": "x"}', "status"),
    ],
)
def test_the_error_of_a_bad_row_names_file_and_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text(f'{{"content": "fine"}}\n\n{line}\n')
    with pytest.raises(ConfigError, match=r"replay\.jsonl:3") as raised:
        Recordings.read([path])
    assert complaint in str(raised.value)


def test_rows_are_found_among_thousands() -> None:
    rows = [
        {"model": model, "text": f"Question {number}: how many?", "content": f"{model} {number}"}
        for model in ("sim/a", "sim/b")
        for number in range(1319)
    ]
    rows += [
        {
            "model": "sim/v",
            "image": hash_image(number),
            "text": word,
            "seed": seed,
            "content": f"{word} {number} {seed}",
        }
        for number in range(40)
        for word in ("valence", "arousal")
        for seed in range(40)
    ]
    recordings = make_recordings(*rows)
    for number in range(0, 1319, 7):
        assert find_content(recordings, f"Solve.\n\nQuestion {number}: how many? Think.", "sim/b") == f"sim/b {number}"
    for number in range(40):
        recording = find_content(
            recordings, "Rate the arousal.", "sim/v", seed=number, image=f"image {number}".encode()
        )
        assert recording == f"arousal {number} {number}"
    assert find_content(recordings, "Rate the arousal.", "sim/v", seed=3, image=b"unknown") is None


short = st.text(alphabet="ab c\n", max_size=40)


@given(st.lists(short.filter(str.strip), max_size=40), short)
def test_the_index_finds_the_same_row_as_a_scan(texts: list[str], request_text: str) -> None:
    index: TextIndex[int] = TextIndex()
    for number, text in enumerate(texts):
        index.set(text, number)
    recording = index.find(Haystack.of(request_text))
    inside = [text.strip() for text in texts if text.strip() in request_text]
    if recording is None:
        assert inside == []
    else:
        pieces = Haystack.of(request_text).pieces
        candidates = [text for text in inside if text in pieces] or inside
        assert len(recording[0]) == max(map(len, candidates))
        assert recording[0] in inside
