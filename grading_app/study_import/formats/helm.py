"""HELM: run folders with `scenario_state.json` (requests and replies) and `per_instance_stats.json` (scores).

An instance, with its perturbation, is an item; a run is a condition; each completion is a trial. The prompt as it was
sent, with its examples, is in the trial's messages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evalsite.lib.text.hashing import hash_content
from grading_app.study_import.study import (
    INPUT_TURN,
    Study,
    StudyCondition,
    StudyDraft,
    StudyError,
    StudyFormat,
    StudyItem,
    StudyScore,
    StudyTrial,
    name_sampler,
    read_finish,
    read_seconds,
    read_settings,
    read_time,
    refuse_unreadable,
    split_model,
)
from grading_app.study_import.text_files import find_files, number_objects, read_json, read_json_list

TOOL = "helm"
STATE, STATS, SPEC = "scenario_state.json", "per_instance_stats.json", "run_spec.json"
# Statistics of the requests, which are no scores.
NO_SCORES = (
    "num_",
    "finish_reason_",
    "inference_",
    "training_",
    "batch_size",
    "max_prob",
    "logprob",
    "prompt_truncated",
)
Row = Mapping[str, Any]
Key = tuple[str, str, int]  # Instance, perturbation, examples.


def _find_runs(path: Path) -> list[Path]:
    return [file.parent for file in find_files(path, STATE) if path.is_dir()]


def read_helm(path: Path) -> Study:
    """Return the study of all runs in a folder. Raise StudyError, which names file and request."""
    runs = _find_runs(path)
    if not runs:
        raise StudyError([f"{path.name}: no {STATE}; choose the folder of a run, or of a suite"])
    draft = StudyDraft(TOOL)
    counts = draft.counts
    scenarios: set[str] = set()
    for run in runs:
        state, spec = _read_state(run), read_json(run / SPEC) if (run / SPEC).is_file() else {}
        with refuse_unreadable(f"{run.name}, {STATE}"):
            scenario, condition = _name_scenario(run), _build_condition(run, state["adapter_spec"], spec)
            scenarios.add(scenario)
            draft.conditions[condition.key] = condition
        counts["without scores"] += not (run / STATS).is_file()
        for where, request in _list_requests(run, state):
            with refuse_unreadable(where):
                item = _build_item(scenario, request["instance"])
                draft.items.setdefault(item.key, item)
                counts["calibration"] += request.get("request_mode") == "calibration"
                counts["ranked"] += request.get("reference_index") is not None
                counts["media"] += bool((request["instance"]["input"] or {}).get("multimedia_content"))
                counts["perturbed"] += bool(request["instance"].get("perturbation"))
                counts["truncated"] += bool(request.get("prompt_truncated"))
    return draft.build(
        path.name if len(scenarios) > 1 else next(iter(scenarios)),
        partial(_read_trials, runs),
        [
            f"stats.json has means of the scores, which are computed here again. {len(runs)} runs are taken.",
            "Costs are not in the files: they stay unknown. Log-probabilities of tokens are not taken.",
        ],
        {
            "without scores": "{} runs have no per_instance_stats.json: their answers have no scores.",
            "ranked": "{} requests asked for the likelihood of one reference: the answer is the most likely one.",
            "calibration": "{} requests for calibration are not taken.",
            "perturbed": "{} requests are of perturbed instances, which are items of their own.",
            "truncated": "{} prompts were cut by the tool.",
            "media": "{} requests have images or sound, which are not taken.",
        },
    )


def _read_state(run: Path) -> Row:
    state = read_json(run / STATE)
    if not isinstance(state.get("request_states"), list) or not isinstance(state.get("adapter_spec"), dict):
        raise StudyError([f"{run.name}, {STATE}: adapter_spec or request_states is missing"])
    return state


def _list_requests(run: Path, state: Row) -> Iterator[tuple[str, Row]]:
    return number_objects(state["request_states"], f"{run.name}, {STATE}, request")


def _name_condition(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def _name_scenario(run: Path) -> str:
    """Return the part of a run's name that is not about the model: `mmlu:subject=law` of `mmlu:subject=law,model=x`."""
    scenario, _, arguments = run.name.partition(":")
    kept = [part for part in arguments.split(",") if part and not part.startswith(("model=", "model_deployment="))]
    return ":".join(filter(None, [scenario, ",".join(kept)]))


def _build_condition(run: Path, adapter: Row, spec: Row) -> StudyCondition:
    model = str(adapter.get("model") or "unknown")
    settings = read_settings(adapter)
    method = str(adapter.get("method") or "generation")
    identity = {name: value for name, value in adapter.items() if name not in ("model", "model_deployment")}
    return StudyCondition(
        key=_name_condition(run),
        **split_model(model),
        prompt=f"helm-{method}-{hash_content(identity)[:12]}".replace("_", "-"),
        messages=INPUT_TURN,
        sampler=name_sampler("helm", settings),
        settings=settings,
    )


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


def _read_trials(runs: Sequence[Path]) -> Iterator[StudyTrial]:
    for run in runs:
        stats: dict[Key, list[Row]] = defaultdict(list)
        for row in read_json_list(run / STATS) if (run / STATS).is_file() else ():
            with refuse_unreadable(f"{run.name}, {STATS}"):
                key = (str(row["instance_id"]), _name_perturbation(row), int(row["train_trial_index"]))
                stats[key] += row["stats"]
        scenario, ranked = _name_scenario(run), defaultdict[Key, list[tuple[str, Row]]](list)
        for where, request in _list_requests(run, _read_state(run)):
            with refuse_unreadable(where):
                instance = request["instance"]
                key = (str(instance["id"]), _name_perturbation(instance), int(request["train_trial_index"]))
                if request.get("request_mode") == "calibration":
                    continue
                if request.get("reference_index") is not None:
                    ranked[key].append((where, request))
                    continue
                yield from _build_trials(where, run, scenario, request, stats[key])
        for key, requests in ranked.items():  # One request for each reference: the most likely one is the answer.
            where, _ = requests[0]
            with refuse_unreadable(where):
                best = max((request for _, request in requests), key=_read_likelihood)
                place = int(best["reference_index"])
                answer = str(best["instance"]["references"][place]["output"].get("text") or "")
                yield from _build_trials(where, run, scenario, best, stats[key], answer)


def _read_likelihood(request: Row) -> float:
    completions = (request.get("result") or {}).get("completions") or []
    return float(completions[0]["logprob"]) if completions else -math.inf


def _build_trials(
    where: str, run: Path, scenario: str, request: Row, stats: Sequence[Row], answer: str | None = None
) -> Iterator[StudyTrial]:
    """Yield the completions of a request, each a repetition. Scores are those of the instance: of the first one."""
    result, sent = request.get("result") or {}, request.get("request") or {}
    completions = result.get("completions") or [{}]
    completions = completions[:1] if answer is not None else completions
    values = {str(stat["name"]["name"]): stat["sum"] / stat["count"] for stat in stats if stat.get("count")}
    is_done = bool(result.get("success"))
    turns = sent.get("messages") or [{"role": "user", "content": str(sent.get("prompt") or "")}]
    scores = tuple(
        StudyScore(scorer=name, value=float(value))
        for name, value in values.items()
        if not name.startswith(NO_SCORES) and math.isfinite(value)
    )
    for place, completion in enumerate(completions):
        text = str(completion.get("text") or "")
        picked = answer if answer is not None else text
        is_only = len(completions) == 1
        yield StudyTrial(
            where=where,
            condition=_name_condition(run),
            item=_build_item_key(scenario, request["instance"]),
            sample_idx=int(request["train_trial_index"]) * len(completions) + place,
            is_done=is_done,
            answer=picked if is_done else "",
            raw_response=text if is_done else None,
            reasoning=str((completion.get("thinking") or {}).get("text") or ""),
            messages=(
                *({"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns),
                {"role": "assistant", "content": text},
            ),
            **read_finish((completion.get("finish_reason") or {}).get("reason")),
            input_tokens=round(values["num_prompt_tokens"]) if is_only and "num_prompt_tokens" in values else None,
            output_tokens=round(values["num_output_tokens"]) if is_only and "num_output_tokens" in values else None,
            latency_ms=read_seconds(result.get("request_time")),
            error="" if is_done else str(result.get("error") or "no result"),
            completed_at=read_time(result.get("request_datetime")),
            scores=scores if is_done and place == 0 else (),
        )


HELM = StudyFormat(
    name=TOOL,
    label="HELM",
    recognises=lambda path: bool(_find_runs(path)),
    read=read_helm,
    content="the folder of a run, or of a suite of runs: scenario_state.json and per_instance_stats.json",
)
