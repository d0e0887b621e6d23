"""itemeval: the configuration of a study as the design of an experiment here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from evalsite.lib.text.hashing import slugify_name
from grading_app.study_import.formats.itemeval_config import (
    GraderSection,
    PromptTemplate,
    SettingsSection,
    StudyConfig,
    StudySection,
    read_config,
)
from grading_app.study_import.study import SETTINGS, StudyCondition, StudyDesign, StudyError, split_model
from grading_app.study_import.study_draft import DesignFile

ON_EMPTY = {"skip": "skip", "rerun": "rerun", "grade": "keep"}
OPENROUTER, ANTHROPIC = "openrouter", "anthropic"
RUBRIC_VARIABLES = {"{input}": "{{input}}", "{target}": "{{target}}", "{grading_scheme}": "{{grading_scheme}}",
                    "{solution}": "{{answer}}", "{id}": "{{key}}"}  # fmt: skip
PROMPT_VARIABLES = {"{input}": "{{input}}", "{id}": "{{key}}"}
Turns = tuple[Mapping[str, str], ...]


def read_design(design_file: DesignFile) -> StudyDesign:
    """Return the design as an experiment file has it.

    By default the dataset has the last part of its hub name, and an endpoint the first part of its models' names. Raise
    StudyError if the text of a prompt or rubric is missing.
    """
    config, names = read_config(design_file.file, design_file.content, design_file.root), design_file.names
    content = config.content
    graders = list(_build_graders(config, names.endpoint))
    prompts = [config.find_prompt(label) for label in content.facets.prompt]
    rubrics = [config.find_rubric(label) for label in content.facets.rubric * bool(graders)]
    folders = (
        ("prompt", prompts, f"{config.content.prompts_dir}/solver"),
        ("rubric", rubrics, config.content.rubrics_dir),
    )
    if problems := [
        f"{config.file.name}: the {kind} {template.label} is not in {folder}: add its file, or choose the whole folder"
        for kind, templates, folder in folders
        for template in templates
        if template.text is None
    ]:
        raise StudyError(problems)
    budget = content.budget
    values = {
        "policy": "dev" if budget.policy == "dev" else "full",
        "max_usd": budget.max_usd,
        "confirm_above_usd": budget.confirm_above_usd,
        "dev_items": budget.dev_items,
        "dev_samples": budget.dev_replications,
    }
    design: dict[str, Any] = {
        "models": [_build_model(model, names.endpoint) for model in content.solvers.models],
        "prompts": [
            {"name": name_prompt(prompt.label, prompt.digest), "messages": list(_build_turns(config, prompt))}
            for prompt in prompts
        ],
        "samplers": [
            {"name": name_sampler(settings.name), **_build_settings(content, settings)}
            for settings in content.facets.settings
        ],
        "samples": content.facets.replications,
        "cache": content.cache,
        "on_empty": ON_EMPTY[content.solvers.on_empty],
        "batch": content.budget.policy == "full-batch" or content.budget.batch not in (False, "auto"),
        "budget": {name: value for name, value in values.items() if value is not None},
        "grade": {"scorers": list_scorers(content), "graders": graders},
    }
    notes = [*_list_dataset_notes(content), *_list_notes(config, has_judges=bool(graders))]
    dataset = content.benchmark.datasets[0].id.rpartition("/")[2]
    return design_file.build("itemeval", content.study, design, notes, dataset=dataset)


def list_scorers(content: StudySection) -> list[str]:
    return [content.facets.scorer] if content.facets.scorer else []


def build_settings(content: StudySection) -> dict[str, Any]:
    """Return the settings of an imported experiment: those that do not need a launch."""
    return {
        "samples": content.facets.replications,
        "on_empty": ON_EMPTY[content.solvers.on_empty],
        "scorers": list_scorers(content),
    }


def list_results_notes(config: StudyConfig, conditions: Sequence[StudyCondition]) -> Iterator[str]:
    """Yield what an imported experiment has from the design, and what it has not. conditions: those without results."""
    facets = config.content.facets
    sizes = {
        "model": len(config.content.solvers.models),
        "prompt": len(facets.prompt),
        "sampler": len(facets.settings),
        "repetition": facets.replications,
    }
    parts = [f"{size} {name}{'' if size == 1 else 's'}" for name, size in sizes.items()]
    parts += [f"scorer {name}" for name in list_scorers(config.content)]
    yield f"{config.file.name}: the experiment has its design: {', '.join(parts)}."
    if conditions:
        names = "; ".join(condition.key for condition in conditions)
        yield f"{len(conditions)} conditions of the design have no solutions yet: {names[:300]}."
    if facets.grader:
        yield f"The judges of the design cannot judge here, their scores are taken: {', '.join(facets.grader)[:300]}."
    yield "The budget of the design is not taken: nothing of an imported experiment is called."
    if unknown := config.list_unknown_keys():
        yield f"Unknown keys are not taken: {', '.join(unknown)[:300]}."


def list_conditions(config: StudyConfig) -> Iterator[StudyCondition]:
    """Yield the crossing of the design, as conditions of an imported study. Their keys are their names."""
    content = config.content
    prompts = [config.find_prompt(label) for label in content.facets.prompt]
    for model, prompt, settings in product(content.solvers.models, prompts, content.facets.settings):
        yield StudyCondition(
            key=f"{model}, {prompt.label}, {settings.name}",
            **split_model(model),
            prompt=name_prompt(prompt.label, prompt.digest),
            messages=() if prompt.text is None else _build_turns(config, prompt),
            sampler=name_sampler(settings.name),
            settings=_build_settings(content, settings),
        )


def name_prompt(label: str, digest: str) -> str:
    """Return the name of a prompt. The hash keeps two versions apart, whose texts may be unknown."""
    return slugify_name(f"itemeval-{(label or 'prompt')[:28]}-{digest}".rstrip("-"))


def name_sampler(settings: str) -> str:
    return slugify_name(f"itemeval-{settings or 'default'}")


def build_turns(text: str, *, split: bool = False) -> Turns:
    """Return the turns of a prompt. `split` makes the text before the input a system turn, as the tool can."""
    return _split(text, "{input}" if split else "", PROMPT_VARIABLES)


def build_rubric_turns(text: str, *, split: bool = False) -> Turns:
    """Return the turns of a rubric. `split` makes the text before the answer a system turn, as the tool can."""
    return _split(text, "{solution}" if split else "", RUBRIC_VARIABLES)


def _build_turns(config: StudyConfig, prompt: PromptTemplate) -> Turns:
    return build_turns(prompt.text or "", split=config.content.solvers.split_prompt)


def _split(text: str, at: str, variables: Mapping[str, str]) -> Turns:
    head, separator, tail = text.partition(at) if at else ("", "", text)
    if not separator or not head:
        return ({"role": "user", "content": _replace(text, variables)},)
    return (
        {"role": "system", "content": _replace(head, variables)},
        {"role": "user", "content": _replace(separator + tail, variables)},
    )


def _replace(text: str, variables: Mapping[str, str]) -> str:
    for placeholder, variable in variables.items():
        text = text.replace(placeholder, variable)
    return text


def _build_model(model: str, endpoint: str) -> dict[str, Any]:
    provider, slash, name = model.partition("/")
    return {
        "name": slugify_name(model.rpartition("/")[2]),
        "model": name if slash else model,
        "endpoint": endpoint or slugify_name(provider),
    }


def _build_settings(content: StudySection, settings: SettingsSection) -> dict[str, Any]:
    """Return the settings of a sampler: those of `model_config`, else those of `solvers`."""
    values = {name: getattr(settings, name, None) for name in SETTINGS}
    values = {name: getattr(content.solvers, name) if value is None else value for name, value in values.items()}
    extra: dict[str, Any] = {}
    if settings.reasoning_tokens is not None:
        extra |= _build_reasoning(content.solvers.models, settings.reasoning_tokens)
    if content.solvers.provider_routing and _have_provider(content.solvers.models, OPENROUTER):
        extra["provider"] = content.solvers.provider_routing
    return {
        **{name: value for name, value in values.items() if value is not None},
        **({"reasoning_effort": settings.reasoning_effort} if settings.reasoning_effort else {}),
        **({"extra": extra} if extra else {}),
    }


def _build_reasoning(models: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return a budget of reasoning tokens as the provider takes it; nothing if the models have several providers."""
    if _have_provider(models, OPENROUTER):
        return {"reasoning": {"max_tokens": tokens}}
    if _have_provider(models, ANTHROPIC):
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
    return {}


def _have_provider(models: Sequence[str], provider: str) -> bool:
    return all(model.startswith(f"{provider}/") for model in models)


def _build_graders(config: StudyConfig, endpoint: str) -> Iterator[dict[str, Any]]:
    """Yield each judge with each rubric. A judge that the file does not define is the name of a model."""
    content = config.content
    for label, rubric in product(content.facets.grader, content.facets.rubric):
        if label not in content.graders and "/" not in label:
            raise StudyError([f"{config.file.name}: facets.grader: {label} is not under graders, and no model"])
        grader = content.graders.get(label) or GraderSection(model=label)
        template = config.find_rubric(rubric)
        routing = grader.provider_routing if _have_provider([grader.model], OPENROUTER) else None
        settings = {"max_tokens": grader.max_tokens, "reasoning_effort": grader.reasoning_effort}
        name = slugify_name(label.rpartition("/")[2])
        yield {
            "name": name if len(content.facets.rubric) == 1 else f"{name}-{slugify_name(rubric)}",
            "model": _build_model(grader.model, endpoint),
            "rubric": {
                "name": name_prompt(rubric, template.digest),
                "messages": list(build_rubric_turns(template.text or "", split=grader.split_rubric)),
            },
            "sampler": {
                "name": f"itemeval-{name}",
                "temperature": 0,
                **{key: value for key, value in settings.items() if value is not None},
                **({"extra": {"provider": routing}} if routing else {}),
            },
            "on_empty": "grade" if content.solvers.on_empty == "grade" else "skip",
        }


# --- notes ------------------------------------------------------------------------------------------------------------


def _list_dataset_notes(content: StudySection) -> Iterator[str]:
    for dataset in content.benchmark.datasets:
        parts = [dataset.id, dataset.name or "", f"split {dataset.split}"]
        parts += [f"revision {dataset.revision}"] if dataset.revision else []
        parts += [f"the first {dataset.limit} rows"] if dataset.limit else []
        yield f"The file names the dataset {', '.join(filter(None, parts))}. Its items are not in the file."
    if len(content.benchmark.datasets) > 1:
        yield "An experiment has one dataset: the first is looked up here, unless you choose another one."
    if content.benchmark.mapping:
        columns = ", ".join(f"{name} from {column}" for name, column in content.benchmark.mapping.items())
        yield f"The mapping of columns belongs to the import of the dataset: {columns[:300]}."


def _list_notes(config: StudyConfig, *, has_judges: bool) -> Iterator[str]:
    content = config.content
    solvers, budget = content.solvers, content.budget
    if has_judges:
        yield "The tool gives judges no scale: rubrics get a scale from 0 to 1. Check them before you approve them."
    yield "Model ids are those of the file without their provider: check them."
    if solvers.provider_routing and not _have_provider(solvers.models, OPENROUTER):
        yield "solvers.provider_routing is not taken: not all models are of OpenRouter."
    if any(
        settings.reasoning_tokens and not _build_reasoning(solvers.models, 1) for settings in content.facets.settings
    ):
        yield "reasoning_tokens is not taken: the models have several providers, or one without such a setting."
    reasons = {
        "solvers.cache_prompt": (solvers.cache_prompt != "auto", "a model's page sets the provider's prompt cache"),
        "budget.batch": (type(budget.batch) is int, "a batch here has the size that the provider takes"),
        "budget.pricing_path": (budget.pricing_path is not None, "prices are those of this site's models"),
        "budget.pricing_max_age_days": (budget.pricing_max_age_days is not None, "prices have their own update here"),
        "budget.cache_schedule": (budget.cache_schedule != "auto", "this site does not schedule calls by their prefix"),
    }
    yield from (f"{key} is not taken: {reason}." for key, (is_set, reason) in reasons.items() if is_set)
    if unknown := config.list_unknown_keys():
        yield f"Unknown keys are not taken: {', '.join(unknown)[:300]}."
