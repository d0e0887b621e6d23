"""HELM: run folders with `scenario_state.json` (requests and replies) and `per_instance_stats.json` (scores).

An instance, with its perturbation, is an item; a run is a condition; each completion is a trial. The prompt as it was
sent, with its examples, is in the trial's messages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import hash_content
from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.study import (
    ContentError,
    Object,
    StudyError,
    StudyItem,
    StudyScore,
    build_condition,
    check_shape,
    dig,
    read_finish,
    read_float,
    read_seconds,
    read_settings,
    read_time,
    replace_non_finite,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files, number_objects, read_json, read_json_list

STATE, STATS = "scenario_state.json", "per_instance_stats.json"
TOKENS = {"input_tokens": "num_prompt_tokens", "output_tokens": "num_output_tokens"}  # As the statistics name them.
# Statistics of the requests, which are no scores.
NO_SCORES = (
    "num_", "finish_reason_", "inference_", "training_", "batch_size", "max_prob", "logprob", "prompt_truncated",
)  # fmt: skip
Row = Mapping[str, Any]
Key = tuple[str, str, int]  # Instance, perturbation, examples.


class StatName(Shape):
    name: Any


class Stat(Shape):
    name: StatName
    count: float | None = None
    sum: float


class InstanceStats(Shape):
    """The statistics of an instance, in `per_instance_stats.json`."""

    instance_id: Any
    perturbation: Object | None = None
    train_trial_index: int
    stats: list[Stat]


class RequestTurn(Shape):
    role: Any
    content: Any


class InstanceInput(Shape):
    messages: list[Object] | None = None


class InstanceReference(Shape):
    output: Object
    tags: list[Any] = []


class Instance(Shape):
    id: Any
    input: InstanceInput
    references: list[InstanceReference] | None = None
    perturbation: Object | None = None


class RequestSent(Shape):
    messages: list[RequestTurn] | None = None


class RequestResult(Shape):
    completions: list[Object] | None = None


class RequestState(Shape):
    """A request in `scenario_state.json`."""

    instance: Instance
    train_trial_index: int
    reference_index: int | None = None
    request: RequestSent | None = None
    result: RequestResult | None = None


def read_helm(runs: Sequence[Path], draft: StudyDraft) -> None:
    """Add the requests of all runs. In a ranking, the most likely reference of several requests is the answer."""
    scenarios: set[str] = set()
    draft.notes.append(
        f"stats.json has means of the scores, which are computed here again. {len(runs)} runs are taken."
    )
    for run in runs:
        draft.where = f"{run.name}, {STATE}"
        state = read_json(run / STATE)
        if not isinstance(state.get("request_states"), list) or not isinstance(state.get("adapter_spec"), dict):
            raise StudyError([f"{draft.where}: adapter_spec or request_states is missing"])
        # The part of the name that is not about the model: `mmlu:subject=law` of `mmlu:subject=law,model=x`.
        task, _, arguments = run.name.partition(":")
        kept = [part for part in arguments.split(",") if part and not part.startswith(("model=", "model_deployment="))]
        scenario = ":".join(filter(None, [task, ",".join(kept)]))
        scenarios.add(scenario)
        adapter = state["adapter_spec"]
        shown = {name: adapter[name] for name in adapter if name not in ("model", "model_deployment")}
        identity = hash_content(replace_non_finite(shown))
        prompt = f"helm-{adapter.get('method') or 'generation'}-{identity[:12]}".replace("_", "-")
        model, name = str(adapter.get("model") or "unknown"), f"{run.parent.name}/{run.name}"
        condition = draft.add_condition(build_condition("helm", name, model, prompt, read_settings(adapter)))
        draft.count("without scores", not (run / STATS).is_file())
        draft.where = f"{run.name}, {STATS}"
        stats: dict[Key, list[Row]] = defaultdict(list)
        for row in read_json_list(run / STATS) if (run / STATS).is_file() else ():
            check_shape(row, InstanceStats)
            stats[str(row["instance_id"]), _name_perturbation(row), row["train_trial_index"]] += row["stats"]
        ranked: dict[Key, list[tuple[str, Row]]] = defaultdict(list)
        for request in draft.follow(number_objects(state["request_states"], f"{run.name}, {STATE}, request")):
            check_shape(request, RequestState)
            instance = request["instance"]
            item = draft.add_item(_build_item(scenario, instance)).key
            key = (str(instance["id"]), _name_perturbation(instance), request["train_trial_index"])
            is_ranked = request.get("reference_index") is not None
            is_calibration = request.get("request_mode") == "calibration"
            draft.count("calibration", is_calibration)
            draft.count("ranked", is_ranked)
            draft.count("media", bool(instance["input"].get("multimedia_content")))
            draft.count("perturbed", bool(instance.get("perturbation")))
            draft.count("truncated", bool(request.get("prompt_truncated")))
            if is_ranked and not is_calibration:
                ranked[key].append((draft.where, request))
            elif not is_calibration:
                _add_trials(draft, condition, item, request, stats[key])
        for key, requests in ranked.items():
            draft.where = requests[0][0]
            best = max((request for _, request in requests), key=_read_likelihood)
            references, place = best["instance"].get("references") or [], best["reference_index"]
            if not 0 <= place < len(references):
                raise ContentError(f"reference_index is {place}, not the place of a reference")
            answer = str(references[place]["output"].get("text") or "")
            _add_trials(draft, condition, _build_item_key(scenario, best["instance"]), best, stats[key], answer)
    draft.name = draft.path.name if len(scenarios) > 1 else scenarios.pop()


def _name_perturbation(instance: Row) -> str:
    perturbation = instance.get("perturbation") or {}
    return str(perturbation.get("name") or "") + (f"-{seed}" if (seed := perturbation.get("seed")) is not None else "")


def _build_item_key(scenario: str, instance: Row) -> str:
    return "-".join(filter(None, [scenario, str(instance["id"]), _name_perturbation(instance)]))[:200]


def _build_item(scenario: str, instance: Row) -> StudyItem:
    question, references = instance["input"], instance.get("references") or []
    turns = question.get("messages") or [{"content": question.get("text") or ""}]
    texts = [str(reference["output"].get("text") or "") for reference in references]
    right = [text for text, reference in zip(texts, references, strict=True) if "correct" in reference.get("tags", ())]
    return StudyItem(
        key=_build_item_key(scenario, instance),
        input="\n\n".join(str(turn.get("content") or "") for turn in turns),
        target="\n".join(right),
        category=str(instance.get("sub_split") or scenario)[:200],
        choices=tuple(texts) if len(texts) > 1 else (),
        metadata={
            "scenario": scenario,
            **{name: instance[name] for name in ("split", "sub_split", "perturbation") if instance.get(name)},
        },
    )


def _read_likelihood(request: Row) -> float:
    completions = (request.get("result") or {}).get("completions") or []
    return read_float(completions[0].get("logprob")) if completions else -math.inf


def _add_trials(
    draft: StudyDraft, condition: str, item: str, request: Row, stats: Sequence[Row], answer: str | None = None
) -> None:
    """Add the completions of a request, each a repetition. Scores are those of the instance: of the first one."""
    result, sent = request.get("result") or {}, request.get("request") or {}
    completions = (result.get("completions") or [{}])[: None if answer is None else 1]
    values = {str(stat["name"]["name"]): float(stat["sum"]) / stat["count"] for stat in stats if stat.get("count")}
    is_done = bool(result.get("success"))
    turns = sent.get("messages") or [{"role": "user", "content": str(sent.get("prompt") or "")}]
    tokens = {name: values.get(statistic) for name, statistic in TOKENS.items()} if len(completions) == 1 else {}
    scores = tuple(
        StudyScore(scorer=name, value=value)
        for name, value in values.items()
        if not name.startswith(NO_SCORES) and math.isfinite(value)
    )
    for place, completion in enumerate(completions):
        text = str(completion.get("text") or "")
        draft.add_trial(
            condition,
            item,
            sample_idx=request["train_trial_index"] * len(completions) + place,
            is_done=is_done,
            answer="" if not is_done else text if answer is None else answer,
            raw_response=text if is_done else None,
            reasoning=str(dig(completion, "thinking.text") or ""),
            messages=(
                *({"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns),
                {"role": "assistant", "content": text},
            ),
            **read_finish(dig(completion, "finish_reason.reason")),
            **{name: round(value) for name, value in tokens.items() if value is not None and math.isfinite(value)},
            latency_ms=read_seconds(result.get("request_time")),
            error="" if is_done else str(result.get("error") or "no result"),
            completed_at=read_time(result.get("request_datetime")),
            scores=scores if is_done and place == 0 else (),
        )


HELM = StudyFormat(
    name="helm",
    label="HELM",
    content="the folder of a run, or of a suite of runs: scenario_state.json and per_instance_stats.json",
    find=lambda path: [file.parent for file in find_files(path, STATE) if path.is_dir()],
    missing=f"no {STATE}; choose the folder of a run, or of a suite",
    read=read_helm,
    notes=("Costs are not in the files: they stay unknown. Log-probabilities of tokens are not taken.",),
    count_notes={
        "without scores": "{} runs have no per_instance_stats.json: their answers have no scores.",
        "ranked": "{} requests asked for the likelihood of one reference: the answer is the most likely one.",
        "calibration": "{} requests for calibration are not taken.",
        "perturbed": "{} requests are of perturbed instances, which are items of their own.",
        "truncated": "{} prompts were cut by the tool.",
        "media": "{} requests have images or sound, which are not taken.",
    },
)
