"""promptfoo: the JSON of an evaluation's results as a study, and its YAML configuration as a design.

A test is an item, a provider with a prompt is a condition, a result is a trial. Each assertion is a score.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evalsite.lib.text.hashing import hash_content, slugify_name
from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.study import (
    ContentError,
    Finite,
    Object,
    StudyCondition,
    StudyDesign,
    StudyError,
    StudyItem,
    StudyScore,
    check_shape,
    describe_kinds,
    dig,
    dig_counts,
    read_decimal,
    read_finish,
    read_float,
    read_settings,
    read_time,
    replace_non_finite,
)
from grading_app.study_import.study_draft import DesignFile, StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files, number_objects, read_json, read_text

TOOL = "promptfoo"
VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
ERROR = 2  # failureReason of a result without an answer. 1 is a failed assertion.
# Assertions that compare the answer with a text of the test, so that this is the right answer.
EQUAL = (
    "equals", "contains", "icontains", "starts-with", "is-exact", "similar", "factuality", "levenshtein", "rouge-n",
)  # fmt: skip
JUDGES = ("llm-rubric", "model-graded-closedqa", "model-graded-factuality", "factuality", "g-eval", "answer-relevance")
CONFIG_KEYS = {"description", "prompts", "providers", "targets", "tests", "defaultTest", "env", "outputPath", "tags"}
TOKENS = {
    "input_tokens": "tokenUsage.prompt",
    "output_tokens": "tokenUsage.completion",
    "reasoning_tokens": "tokenUsage.completionDetails.reasoning",
}
Row = Mapping[str, Any]


class TestCase(Shape):
    """A test, in the results or in a configuration."""

    vars: Object | None = None
    asserts: list[Any] | None = Field(default=None, alias="assert")
    metadata: Object | None = None


class PromptSent(Shape):
    config: Object | None = None


class AssertionResult(Shape):
    assertion: Object | None = None


class GradingResult(Shape):
    components: list[AssertionResult | None] | None = Field(default=None, alias="componentResults")


class ResultRow(Shape):
    """A result of an evaluation."""

    vars: Object | None = None
    case: TestCase | None = Field(default=None, alias="testCase")
    prompt: PromptSent | None = None
    provider: Object | None = None
    place: Annotated[int, Field(alias="promptIdx", ge=0)]
    latency: Finite | None = Field(default=None, alias="latencyMs")
    grading: GradingResult | None = Field(default=None, alias="gradingResult")


class ProviderEntry(Shape):
    config: Object | None = None


class ResultList(Shape):
    prompts: list[Object]


class ResultsFile(Shape):
    results: ResultList


class EvaluateOptions(Shape):
    repeat: int | None = None


class ConfigFile(Shape):
    options: EvaluateOptions | None = Field(default=None, alias="evaluateOptions")


def _find_results(path: Path) -> list[tuple[str, Row]]:
    """Return the evaluations at the path, with the names of their files. A list within `results` is a version 3."""
    found: list[tuple[str, Row]] = []
    for file in find_files(path, ".json"):
        with file.open("rb") as start:
            if b'"results"' not in start.read(2_000):
                continue
        content = read_json(file)
        results = content.get("results")
        if isinstance(results, dict) and isinstance(results.get("results"), list) and "prompts" in results:
            found.append((file.name, content))
    return found


def read_promptfoo(evaluations: Sequence[tuple[str, Row]], draft: StudyDraft) -> None:
    """Add the results of all evaluations. A repeated test of a condition is its next repetition."""
    draft.name = str(dig(evaluations[0][1], "config.description") or "") or draft.path.stem
    for name, content in evaluations:
        draft.where = name
        check_shape(content, ResultsFile)
        providers = [one for one in _list(dig(content, "config.providers")) if isinstance(one, dict)]
        for provider in providers:
            check_shape(provider, ProviderEntry)
        time = dig(content, "results.timestamp")
        for row in draft.follow(number_objects(content["results"]["results"], f"{name}, result")):
            check_shape(row, ResultRow)
            output = dig(row, "response.output")
            is_error = row.get("failureReason") == ERROR or (output is None and bool(row.get("error")))
            is_cached = bool(dig(row, "response.cached"))
            draft.count("not asked", not output and row.get("failureReason") != ERROR)
            draft.count("cached", is_cached)
            draft.count("free", not row.get("cost"))
            draft.count("files", any(str(value).startswith("file://") for value in (row.get("vars") or {}).values()))
            draft.add_trial(
                draft.add_condition(_build_condition(content, row, providers)),
                draft.add_item(_build_item(row)).key,
                is_done=not is_error,
                answer=output if isinstance(output, str) else "" if output is None else json.dumps(output),
                **read_finish(dig(row, "response.finishReason")),
                **({} if is_error or is_cached else dig_counts(row, TOKENS)),
                cost_usd=Decimal(0) if is_cached else read_decimal(row["cost"]) if row.get("cost") else None,
                latency_ms=None if row.get("latencyMs") is None else round(row["latencyMs"]),
                is_cached=is_cached,
                error=str(row.get("error") or "") if is_error else "",
                completed_at=read_time(time),
                scores=() if is_error else tuple(_list_scores(row, draft)),
            )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _list_scores(row: Row, draft: StudyDraft) -> Iterator[StudyScore]:
    """Yield the score of each assertion by its metric or type, and the weighted score of the test as `score`."""
    names: Counter[str] = Counter()
    for verdict in dig(row, "gradingResult.componentResults") or []:
        assertion = dig(verdict, "assertion")
        if isinstance(assertion, dict):
            draft.count("judges", assertion.get("type") in JUDGES)
            name = str(assertion.get("metric") or assertion.get("type") or "assertion")
            names[name] += 1
            scorer = name if names[name] == 1 else f"{name}-{names[name]}"
            yield _build_score(scorer, verdict, raw=str(assertion.get("value") or "")[:2000])
    if dig(row, "gradingResult.score") is not None:
        yield _build_score("score", row["gradingResult"])


def _build_score(scorer: str, verdict: Row, raw: str = "") -> StudyScore:
    return StudyScore(
        scorer,
        read_float(verdict.get("score")),
        raw,
        reasoning=str(verdict.get("reason") or ""),
        detail={"pass": bool(verdict.get("pass"))},
    )


def _build_item(row: Row) -> StudyItem:
    """Return the item of a test: its variables. A repeated test is the same item."""
    test = row.get("testCase") or {}
    variables = {name: value for name, value in (row.get("vars") or {}).items() if not str(name).startswith("_")}
    assertions = [part for part in test.get("assert") or [] if isinstance(part, dict)]
    targets = [str(part["value"]) for part in assertions if part.get("type") in EQUAL and part.get("value") is not None]
    identity = hash_content(replace_non_finite([variables, str(test.get("description") or ""), assertions]))[:12]
    values = [value if isinstance(value, str) else json.dumps(value) for value in variables.values()]
    label = str(test.get("description") or (values[0] if values else "test"))
    return StudyItem(
        key=f"{slugify_name(label[:60]) or 'test'}-{identity}",
        input="\n\n".join(values) or str((row.get("prompt") or {}).get("raw") or ""),
        target="\n".join(targets),
        category=str((test.get("metadata") or {}).get("category") or "")[:200],
        metadata=replace_non_finite(
            {**variables, **({"test": test["description"]} if test.get("description") else {})}
        ),
    )


def _build_condition(content: Row, row: Row, providers: Sequence[Row]) -> StudyCondition:
    provider, place = row.get("provider") or {}, row["promptIdx"]
    provider_id, label = str(provider.get("id") or "unknown"), str(provider.get("label") or "")
    same = [one for one in providers if str(one.get("id")) == provider_id and str(one.get("label") or "") == label]
    config = {**((same[0].get("config") or {}) if same else {}), **((row.get("prompt") or {}).get("config") or {})}
    prompts = content["results"]["prompts"]
    raw = str(prompts[place].get("raw") or "") if place < len(prompts) else str((row.get("prompt") or {}).get("raw"))
    name = str((row.get("prompt") or {}).get("label") or "prompt")
    return StudyCondition(
        key=json.dumps([provider_id, label, name, hash_content(raw)[:12]]),
        **_split_provider(provider_id, label),
        prompt=slugify_name(name[:60]) or "prompt",
        messages=_build_turns(raw, "meta."),
        sampler=slugify_name(f"promptfoo-{label or provider_id}"[:70]),
        settings=_read_settings(config),
    )


def _read_settings(config: Row) -> dict[str, Any]:
    settings = read_settings({**config, "max_tokens": config.get("max_tokens", config.get("max_completion_tokens"))})
    return settings | (
        {"reasoning_effort": effort} if isinstance(effort := config.get("reasoning_effort"), str) else {}
    )


def _split_provider(provider_id: str, label: str = "") -> dict[str, Any]:
    """Return the fields of a condition. `openai:chat:NAME` and `ollama:NAME` start with the provider."""
    provider, colon, rest = provider_id.partition(":")
    model = rest.rpartition(":")[2] if provider in ("openai", "anthropic", "azure", "google", "vertex") else rest
    return {"model": label or model or provider, "model_id": model or provider, "provider": provider if colon else ""}


def _build_turns(raw: str, prefix: str) -> tuple[Mapping[str, str], ...]:
    """Return the turns of a prompt: a JSON list of messages, or a text. Variables become fields of the item."""
    try:
        messages = json.loads(raw)
    except (ValueError, RecursionError):
        messages = None
    if not isinstance(messages, list) or not all(isinstance(turn, dict) and "role" in turn for turn in messages):
        messages = [{"role": "user", "content": raw}]
    return tuple(
        {
            "role": str(turn["role"]),
            "content": VARIABLE.sub(
                lambda match: f"{{{{{prefix}{match[1]}}}}}",
                turn["content"] if isinstance(turn.get("content"), str) else json.dumps(turn.get("content")),
            ),
        }
        for turn in messages
    )


# --- the design -------------------------------------------------------------------------------------------------------


def read_config(design: DesignFile) -> StudyDesign:
    """Return the design of a configuration. Raise StudyError for a prompt that cannot be read."""
    config = design.content
    check_shape(config, ConfigFile)
    prompts = []
    for number, prompt in enumerate(_list(config["prompts"]), start=1):
        entry = prompt if isinstance(prompt, dict) else {"raw": prompt}
        raw = str(entry.get("raw") or entry.get("id") or "")
        if raw.startswith("file://"):
            raw = _read_prompt(design, raw.removeprefix("file://"))
        label = slugify_name(str(entry.get("label") or entry.get("id") or f"prompt-{number}")[:60])
        prompts.append({"name": f"promptfoo-{label}", "messages": list(_build_turns(raw, "meta."))})
    models, samplers = _list_models(_list_providers(config), design.names.endpoint)
    items: dict[str, StudyItem] = {}
    assertions: Counter[str] = Counter()
    tests = _list(config.get("tests"))
    for test in (test for test in tests if isinstance(test, dict)):
        check_shape(test, TestCase)
        item = _build_item({"testCase": test, "vars": test.get("vars")})
        items.setdefault(item.key, item)
        assertions.update(
            str(part.get("type") if isinstance(part, dict) else part) for part in test.get("assert") or []
        )
    kinds = describe_kinds(assertions)
    unknown_keys = ", ".join(sorted(str(key) for key in config.keys() - CONFIG_KEYS))
    notes = {
        "The providers have different settings: every model is asked with each of them. Check them.": len(samplers) > 1,
        "Some tests are files or names, which are not read. Import them as a dataset, and name it.": not all(
            isinstance(test, dict) for test in tests
        ),
        f"Assertions are not taken; choose scorers and judges: {kinds[:300]}.": kinds,
        f"These keys are not taken: {unknown_keys[:300]}.": unknown_keys,
    }
    content = {
        "models": models,
        "prompts": prompts,
        "samplers": samplers,
        "samples": (config.get("evaluateOptions") or {}).get("repeat") or 1,
    }
    title = str(config.get("description") or design.file.stem)
    return design.build(TOOL, title, content, [note for note in notes if notes[note]], list(items.values()))


def _list_providers(config: Row) -> list[Any]:
    return _list(config.get("providers") or config.get("targets"))


def _list_models(providers: Sequence[Any], endpoint: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the models of the providers, and their different settings as samplers."""
    models: list[dict[str, Any]] = []
    samplers: list[dict[str, Any]] = []
    for provider in providers:
        # A provider is its id, or a mapping with the id as a key or in it.
        entry: dict[str, Any] = dict(provider) if isinstance(provider, dict) else {"id": provider}
        if "id" not in entry and len(entry) == 1:
            ((provider_id, options),) = entry.items()
            if options and not isinstance(options, dict):
                raise ContentError(f"providers: the options of {provider_id} are not a mapping")
            entry = {"id": provider_id, **(options or {})}
        check_shape(entry, ProviderEntry)
        parts = _split_provider(str(entry.get("id") or "unknown"))
        model = {
            "name": slugify_name(str(entry.get("label") or parts["model"])),
            "model": parts["model_id"],
            "endpoint": endpoint or slugify_name(parts["provider"] or TOOL),
        }
        models += [model] if model not in models else []
        settings = _read_settings(entry.get("config") or {})
        if settings not in [{key: value for key, value in one.items() if key != "name"} for one in samplers]:
            samplers.append({"name": f"promptfoo-{len(samplers) + 1}", **settings})
    return models, samplers


def _read_prompt(design: DesignFile, name: str) -> str:
    """Return the text of a prompt's file, which must be in the same folder as the configuration."""
    for candidate in (design.file.parent / name, design.file.parent / Path(name).name):
        if candidate.is_file() and candidate.resolve().is_relative_to(design.root.resolve()):
            if candidate.suffix in (".py", ".js", ".mjs", ".ts"):
                break
            return read_text(candidate)
    raise StudyError(
        [f"{design.file.name}: the prompt {name} is not a text file of the folder: add it, or choose the whole folder"]
    )


PROMPTFOO = StudyFormat(
    name=TOOL,
    label="promptfoo",
    content="the JSON of results (-o results.json), or a folder of them; for a design, the YAML configuration",
    suffixes=(".json",),
    find=_find_results,
    missing="no results of promptfoo; write them with `promptfoo eval -o results.json`",
    read=read_promptfoo,
    is_design=lambda content: bool(content.get("prompts") and _list_providers(content)),
    read_design=read_config,
    notes=("Keys, headers and addresses of providers are not taken.",),
    count_notes={
        "free": "The cost of {} results is 0 or missing: the tool had no price. It is unknown here.",
        "cached": "{} results came from the tool's own cache: nothing was paid.",
        "judges": "{} scores are of judges, whose messages and costs are not in the file.",
        "files": "{} results name a file as variable, which is not read.",
        "not asked": "{} results are empty answers.",
    },
)
