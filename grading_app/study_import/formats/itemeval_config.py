"""itemeval: the configuration of a study (YAML) with its templates. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalsite.lib.text.strict_yaml import join_path
from grading_app.study_import.study import (
    StudyError,
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
