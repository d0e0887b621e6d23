"""OASIS-LLM: a run's configuration, or an experiment of several, as the design of an experiment of this site.

The tool has the text of its prompts in its code. Without an override in the file, the prompt is worded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalsite.lib.text.characters import describe_unstorable
from evalsite.lib.text.hashing import canonical_json, slugify_name
from grading_app.study_import.study import StudyDesign, StudyError, replace_non_finite
from grading_app.study_import.study_draft import DesignFile

RUN, EXPERIMENT = {"name", "provider", "model"}, {"name", "dataset", "configs"}
DEFAULTS: dict[str, Any] = {
    "modality": "vision", "dimensions": ["valence", "arousal"], "image_set": "pilot_30", "samples_per_image": 5,
    "max_concurrency": 4, "request_timeout_s": 60, "max_retries": 3, "retry_backoff_base_s": 1.0,
    "max_permanent_failure_rate": 0.05, "permanent_failure_warmup": 20, "capture_reasoning": True,
    "cache_buster": True, "extra_params": {}, "temperature": None, "max_tokens": None,
    "system_prompt_override": None, "format_hint_suffix": None,
}  # fmt: skip
NOT_TAKEN = {
    "api_base": "an endpoint of this site has the address",
    "retry_backoff_coef": "the wait doubles here",
    "ollama_evict_threshold": "this site does not unload models",
}
SHARED = (
    "dimensions", "samples_per_image", "max_concurrency", "request_timeout_s", "max_retries", "retry_backoff_base_s",
    "max_permanent_failure_rate", "permanent_failure_warmup", "cache_buster", "image_set", "provider",
)  # fmt: skip
SYSTEM = (
    "You take part in a study of how people feel when they look at photographs. Answer as a typical adult would, from "
    "the first impression."
)
QUESTION = "{{dimension_instructions}}\n\nRate the photograph from {{scale_min}} to {{scale_max}}:\n{{scale_labels}}"
DIMENSIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "valence": (
        "Valence: how negative or positive does this photograph make you feel?",
        (
            "Very negative", "Moderately negative", "Somewhat negative", "Neutral", "Somewhat positive",
            "Moderately positive", "Very positive",
        ),
    ),
    "arousal": (
        "Arousal: how calm or excited does this photograph make you feel, whether in a good way or a bad way?",
        (
            "Very low", "Moderately low", "Somewhat low", "Neither low nor high", "Somewhat high",
            "Moderately high", "Very high",
        ),
    ),
}  # fmt: skip


def is_config(content: Mapping[str, Any]) -> bool:
    return content.keys() >= RUN or content.keys() >= EXPERIMENT


def read_config(design_file: DesignFile) -> StudyDesign:
    """Return the design of a run's configuration, or of an experiment of the tool.

    By default the dataset has the name of the image set, and the endpoint that of the provider. Raise StudyError.
    """
    path, content, names = design_file.file, design_file.content, design_file.names
    entries = content.get("configs") if "configs" in content else [content]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise StudyError([f"{path.name}: configs must be a list of mappings"])
    configs = [_complete(path, at, entry, content) for at, entry in enumerate(entries)]
    different = [key for key in SHARED if any(config.get(key) != configs[0].get(key) for config in configs)]
    if different:
        raise StudyError([
            f"{path.name}: the configs differ in {', '.join(different)}, which an experiment has once; import each one "
            "from a file of its own"
        ])  # fmt: skip
    # The design must be every model with every prompt and sampler.
    shared_config = configs[0]
    builders = (_build_model, _build_prompt, _build_sampler)
    models, prompts, samplers = (_list_unique(map(build, configs)) for build in builders)
    combinations = _list_unique([build(config) for build in builders] for config in configs)
    if len(combinations) < len(models) * len(prompts) * len(samplers):
        raise StudyError([
            "configs: they are not every model with every prompt and sampler; import each one from a file of its own"
        ])  # fmt: skip
    design = {
        "models": models,
        "prompts": _add_numbers(prompts),
        "samplers": _add_numbers(samplers),
        "dimensions": [
            {
                "name": name,
                "title": name.capitalize(),
                "instructions": instructions,
                "min": 1,
                "max": len(labels),
                "labels": dict(enumerate(labels, start=1)),
            }
            for name, (instructions, labels) in (
                (str(one), DIMENSIONS[str(one)]) for one in shared_config["dimensions"]
            )
        ],
        "samples": shared_config["samples_per_image"],
        "cache_buster": shared_config["cache_buster"],
        "max_concurrency": shared_config["max_concurrency"],
        "request_timeout_s": shared_config["request_timeout_s"],
        "max_attempts": shared_config["max_retries"] + 1,
        "backoff_s": shared_config["retry_backoff_base_s"],
        "stop_failure_rate": shared_config["max_permanent_failure_rate"],
        "stop_after_attempts": shared_config["permanent_failure_warmup"],
    }
    design["description"] = str(content.get("description") or "")
    for model in design["models"]:
        model["endpoint"] = names.endpoint or slugify_name(str(configs[0]["provider"]))
    notes = []
    if not all(config["system_prompt_override"] for config in configs):
        notes.append(
            "The tool's own prompt is not in the file: the prompt and the dimensions are worded here; check them."
        )
    notes.append("A trial is tried max_retries + 1 times here; the tool does that up to three times over.")
    notes += [
        f"{key} is not taken: {reason}."
        for key, reason in NOT_TAKEN.items()
        if any(config.get(key) is not None for config in configs)
    ]
    known_keys = {*DEFAULTS, *NOT_TAKEN, *RUN, *EXPERIMENT, "config_name", "description"}
    if unknown_keys := sorted({str(key) for entry in entries for key in entry} - known_keys):
        notes.append(f"Unknown keys are not taken: {', '.join(unknown_keys)[:300]}.")
    dataset = str(content.get("dataset") or configs[0]["image_set"])
    return design_file.build("OASIS-LLM", str(content["name"]), design, notes, dataset=dataset)


def _complete(path: Path, at: int, entry: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the tool's defaults. Null is a default, too."""
    config = DEFAULTS | {key: value for key, value in entry.items() if value is not None}
    where = f"{path.name}, configs[{at}]" if "configs" in content else path.name
    if missing_keys := [key for key in ("provider", "model") if not config.get(key)]:
        raise StudyError([f"{where}: {', '.join(missing_keys)} is missing"])
    if not isinstance(config["dimensions"], list) or not set(map(str, config["dimensions"])) <= DIMENSIONS.keys():
        raise StudyError([f"{where}: dimensions must be a list of {', '.join(DIMENSIONS)}"])
    if config["modality"] not in ("vision", "text"):
        raise StudyError([f"{where}: modality is {config['modality']!r}, not vision or text"])
    for key, value in config.items():
        if fault := describe_unstorable(value):
            raise StudyError([f"{where}: {key} {fault}"])
    if type(config["max_retries"]) is not int:
        raise StudyError([f"{where}: max_retries is {config['max_retries']!r}, not a whole number"])
    return {key: replace_non_finite(value) for key, value in config.items()}  # Keys of mappings become texts.


def _list_unique(values: Any) -> list[Any]:
    return list({canonical_json(value): value for value in values}.values())


def _add_numbers(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with different names."""
    return [row | ({"name": f"{row['name']}-{number}"} if number > 1 else {}) for number, row in enumerate(rows, 1)]


def _build_model(config: Mapping[str, Any]) -> dict[str, Any]:
    model = str(config["model"]).removeprefix("openrouter/")
    return {"name": slugify_name(model.rpartition("/")[2]), "model": model}


def _build_prompt(config: Mapping[str, Any]) -> dict[str, Any]:
    stimulus = "{{image}}" if config["modality"] == "vision" else "{{input}}"
    suffix = f"\n\n{config['format_hint_suffix']}" if config["format_hint_suffix"] else ""
    return {
        "name": "oasis-llm-design",
        "system": str(config["system_prompt_override"] or SYSTEM),
        "user": f"{stimulus}\n{QUESTION}{suffix}",
        "answer_format": "rating_with_reasoning" if config["capture_reasoning"] else "rating",
    }


def _build_sampler(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: config[key] for key in ("temperature", "max_tokens") if config[key] is not None}
    extra = {"extra": config["extra_params"]} if config["extra_params"] else {}
    return {"name": "oasis-llm-design", **settings, **extra}
