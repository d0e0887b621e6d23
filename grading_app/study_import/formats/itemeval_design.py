"""itemeval: the configuration of a study (YAML) with its templates, as the design of an experiment here. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalsite.lib.text.hashing import slugify_name
from evalsite.lib.text.strict_yaml import join_path
from grading_app.study_import.study import (
    SETTINGS,
    DesignNames,
    StudyCondition,
    StudyDesign,
    StudyError,
    split_model,
)
from grading_app.study_import.text_files import read_text, read_yaml_files

KEYS = {"study", "benchmark"}
BUILTIN = "builtin:"
PROMPTS, RUBRICS = "prompts/solver", "rubrics"
# From itemeval 0.2.0, MIT License, Copyright (c) 2026 Zhimeng (Brian) Luo. A test compares them with the tool's hashes.
BUILTIN_TEMPLATES: Mapping[tuple[str, str], str] = {
    (PROMPTS, "minimal"): """\
Solve the following problem. Show your reasoning, then state your final answer
on a line starting with "ANSWER:".

{input}
""",
    (PROMPTS, "standard"): """\
You are a careful, expert problem solver. Read the problem below and work
through it with a complete, rigorous argument. Show all of your reasoning. End
with a line starting with "ANSWER:" giving your final answer.

Problem:
{input}
""",
    (RUBRICS, "standard"): """\
You are grading a candidate solution against a reference solution and a grading
scheme.

Problem:
{input}

Grading scheme:
{grading_scheme}

Reference solution:
{target}

Candidate solution:
{solution}

Evaluate the candidate solution against the grading scheme. Award a numeric
score according to the scheme.
""",
}
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


ON_EMPTY = {"skip": "skip", "rerun": "rerun", "grade": "keep"}
OPENROUTER, ANTHROPIC = "openrouter", "anthropic"
RUBRIC_VARIABLES = {"{input}": "{{input}}", "{target}": "{{target}}", "{grading_scheme}": "{{grading_scheme}}",
                    "{solution}": "{{answer}}", "{id}": "{{key}}"}  # fmt: skip
PROMPT_VARIABLES = {"{input}": "{{input}}", "{id}": "{{key}}"}
Turns = tuple[Mapping[str, str], ...]


# --- the file ---------------------------------------------------------------------------------------------------------


class ConfigSection(BaseModel):
    """A section of the file. Keys that are unknown here are kept, so that the report can name them."""

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=True, allow_inf_nan=False)


class DatasetSection(ConfigSection):
    id: str = Field(min_length=1)
    revision: str | None = None
    split: str = "train"
    name: str | None = None
    limit: int | None = None


class BenchmarkSection(ConfigSection):
    adapter: str = "hf"
    datasets: list[DatasetSection] = Field(min_length=1)
    mapping: dict[str, Any] = {}


class SolversSection(ConfigSection):
    models: list[str] = Field(min_length=1)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    on_empty: Literal["skip", "rerun", "grade"] = "skip"
    cache_prompt: Literal["auto", "on", "off"] | bool = "auto"
    split_prompt: bool = False
    provider_routing: dict[str, Any] | None = None


class SettingsSection(ConfigSection):
    """An entry of `facets.model_config`: settings that replace those of `solvers`."""

    name: str = Field(min_length=1)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: Effort | None = None
    reasoning_tokens: int | None = None


class FacetsSection(ConfigSection):
    prompt: list[str] = Field(default=["builtin:standard"], min_length=1)
    grader: list[str] = []
    rubric: list[str] = Field(default=["builtin:standard"], min_length=1)
    scorer: Literal["exact_match", "multiple_choice", "numeric"] | None = None
    replications: int = Field(default=1, ge=1)
    settings: list[SettingsSection] = Field(
        default=[SettingsSection(name="default")], alias="model_config", min_length=1
    )


class GraderSection(ConfigSection):
    model: str = Field(min_length=1)
    max_tokens: int | None = 2048
    reasoning_effort: Effort | None = None
    split_rubric: bool = False
    provider_routing: dict[str, Any] | None = None


class BudgetSection(ConfigSection):
    policy: Literal["dev", "full-interactive", "full-batch"] = "dev"
    confirm_above_usd: float = 5.0
    max_usd: float | None = None
    batch: bool | int | Literal["auto"] = "auto"
    dev_items: int = 2
    dev_replications: int | None = None
    pricing_path: str | None = None
    pricing_max_age_days: float | None = None
    cache_schedule: Literal["auto", "off"] | bool = "auto"


class StudySection(ConfigSection):
    """The whole file."""

    study: str = Field(min_length=1)
    output_dir: str = "studies"
    prompts_dir: str = "prompts"
    rubrics_dir: str = "rubrics"
    cache: bool = True
    benchmark: BenchmarkSection
    solvers: SolversSection
    facets: FacetsSection
    graders: dict[str, GraderSection] = {}
    crossing: Literal["full"] = "full"
    budget: BudgetSection = BudgetSection()


@dataclass(frozen=True)
class PromptTemplate:
    """The text of a prompt or rubric. label: the name in the file. text: None if no file has it."""

    label: str
    text: str | None

    @property
    def digest(self) -> str:
        """Return the start of the hash by which the stores of the tool name this text."""
        return "" if self.text is None else hashlib.sha256(self.text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class StudyConfig:
    """A configuration file within the folder `root`."""

    file: Path
    root: Path
    content: StudySection

    def find_prompt(self, label: str) -> PromptTemplate:
        return self._find(label, PROMPTS, f"{self.content.prompts_dir}/solver")

    def find_rubric(self, label: str) -> PromptTemplate:
        return self._find(label, RUBRICS, self.content.rubrics_dir)

    def _find(self, label: str, kind: str, folder: str) -> PromptTemplate:
        """Return the template: packaged, in its folder, or beside the configuration (as in uploads)."""
        name = label.removeprefix(BUILTIN)
        if label != name:
            return PromptTemplate(label, BUILTIN_TEMPLATES.get((kind, name)))
        places = (self.file.parent / folder / f"{name}.md", self.file.parent / f"{name}.md")
        for file in places:
            if file.is_file() and file.resolve().is_relative_to(self.root.resolve()):
                return PromptTemplate(label, read_text(file).replace("\r\n", "\n"))
        return PromptTemplate(label, None)

    def list_unknown_keys(self) -> list[str]:
        return list(_find_extra("", self.content))


def find_config_file(path: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the only YAML file that is the configuration of a study, with its content. Raise StudyError for bad YAML.

    path: the file, or a folder that has it.
    """
    matches = [(file, content) for file, content in read_yaml_files(path) if content.keys() >= KEYS]
    return matches[0] if len(matches) == 1 else None


def read_config(file: Path, content: Mapping[str, Any], root: Path) -> StudyConfig:
    """Return the checked configuration. Raise StudyError, which names each wrong key."""
    try:
        return StudyConfig(file, root, StudySection.model_validate(content))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise StudyError(
            [f"{file.name}: {join_path(problem['loc'])}: {problem['msg'].lower()}" for problem in problems]
        ) from None


def _find_extra(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of unknown keys."""
    if isinstance(value, ConfigSection):
        yield from (f"{path}{key}"[:80] for key in value.model_extra or {})
        for name, field in type(value).model_fields.items():
            yield from _find_extra(f"{path}{field.alias or name}.", getattr(value, name))
    elif isinstance(value, list):
        for part in value:
            yield from _find_extra(path, part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, ConfigSection):
                yield from _find_extra(f"{path}{key}.", part)


# --- the design -------------------------------------------------------------------------------------------------------


def find_design(path: Path, names: DesignNames) -> StudyDesign | None:
    """Return the design of a configuration, or of a folder with one; None if there is none. Raise StudyError."""
    if (config_file := find_config_file(path)) is None:
        return None
    config = read_config(*config_file, root=path if path.is_dir() else path.parent)
    return StudyDesign("itemeval", *build_design(config, names))


def build_design(config: StudyConfig, names: DesignNames) -> tuple[dict[str, Any], list[str]]:
    """Return the design as an experiment file has it, and notes on what is not taken.

    By default the dataset has the last part of its hub name, and an endpoint the first part of its models' names. Raise
    StudyError if the text of a prompt or rubric is missing.
    """
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
        "experiment": names.experiment or slugify_name(content.study),
        "title": content.study[:200],
        "dataset": names.dataset or slugify_name(content.benchmark.datasets[0].id.rpartition("/")[2]),
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
    return design, [*_list_dataset_notes(content), *_list_notes(config, has_judges=bool(graders))]


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
