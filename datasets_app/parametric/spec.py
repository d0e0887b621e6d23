"""The file of a space: tasks, their parameters, and the precision of each point.

    name: example
    precision:
      low: {count: 32}                                    # The first block is the default.
      high: {count: 128, targetci: 0.05, maximum: 1024}
    tasks:
      - name: arithmetic                                  # mode: grid
        params: {length: [8, 16], max_depth: {from: 1, to: 3}}
      - name: swaps
        task: shuffle
        mode: list
        params: [{length: 3}, {length: 5, max_depth: 9, count: 64}]
      - name: brackets
        mode: manifold
        manifold: {length: {range: [8, 16, 24, 32], window: {skip: degree, body: 2}}}
        degree: 1

The format is that of ReasonScape's experiment files. `file` names a task file, whose fields `read_space` merges into
the task. ReasonScape's fields that have no meaning here are left out, and `SpaceSpec.notes` names them. Stopping fields
belong in a precision block, or in one task, which overrides the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from datasets_app.generators.registry import UnknownTask, get_generator, load_generators
from datasets_app.parametric.manifolds import (
    MAX_DEGREE,
    RESAMPLE,
    Density,
    GridAxis,
    ManifoldAxis,
    Resample,
    Scalar,
    StrictModel,
    Window,
)
from evalsite.lib.text.names import did_you_mean
from evalsite.lib.text.strict_yaml import YamlError, join_path, parse_yaml

MODES = ("grid", "list", "manifold")
STATIC_MODE_MESSAGE = (
    "static is not supported as a mode: a fixed file of questions has no parameters to explore. "
    "Import such a file as a dataset, or use grid, list or manifold"
)
# ReasonScape's fields without a meaning here, with the reason that their note gives.
SPACE_FIELDS_LEFT_OUT = {
    **dict.fromkeys(("tiers", "surfaces", "projections"), "the points come from degree, density and precision"),
    "views": "pages choose their own views",
}
TASK_FIELDS_LEFT_OUT = {
    "answer": "answers are read by the rule of the task here",
    "views": "pages choose their own views",
    "target_tokens": "no parameter is solved for a number of tokens",
}
CALIBRATE = "calibrate"
MAX_PROBLEMS = 20
MAX_COUNT = 100_000
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$")]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Share = Annotated[float, Field(ge=0, le=1)]


class SpaceError(ValueError):
    """An invalid space. Each of `problems` is a sentence that starts with the path of the field."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


class StoppingFields(StrictModel):
    """The rule that decides when a point has enough cases, with the fields of `runs_app.stopping.rules.StoppingRule`.

    targetci: the target half-width of the 95 % interval. targetciht: the target if the share of truncated answers is
    above backoffht. abortht: the share of truncated answers that aborts a point. minci: the smallest half-width that is
    ever required. maximum: the number of cases at which a point always ends; by default, `count`.
    """

    targetci: Share | None = None
    targetciht: Share | None = None
    abortht: Share | None = None
    backoffht: Share | None = None
    minci: Share | None = None
    maximum: Count | None = None

    def stopping(self) -> dict[str, Any]:
        """Return the stopping fields that have a value."""
        return {name: value for name in StoppingFields.model_fields if (value := getattr(self, name)) is not None}


class Precision(StoppingFields):
    """A named block: the number of cases per point and round, and the stopping rule."""

    count: Count


class TaskSpec(StoppingFields):
    """The fields of tasks of all modes. version: of the generator; by default, the newest."""

    name: Name
    task: str | None = None
    file: str | None = None
    label: str = Field("", max_length=200)
    degree: int | None = Field(None, ge=0, le=MAX_DEGREE)
    density: Density | None = None
    version: int | None = None

    @property
    def generator_name(self) -> str:
        """Return the name of the generator: `task`, else the stem of `file`, else `name`."""
        return self.task or (PurePosixPath(self.file).stem if self.file else self.name)

    @model_validator(mode="after")
    def _check_generator(self) -> TaskSpec:
        try:
            get_generator(self.generator_name)
        except UnknownTask as error:
            raise ValueError(str(error)) from None
        return self


def _check_mode(value: Any) -> Any:
    if value == "static":
        raise ValueError(STATIC_MODE_MESSAGE)
    if value not in MODES:
        raise ValueError(f"choose grid, list or manifold, not {str(value)[:40]!r}")
    return value


Mode = Annotated[str, BeforeValidator(_check_mode)]


class GridTask(TaskSpec):
    mode: Mode = "grid"
    params: dict[str, GridAxis] = Field(default_factory=dict)


class ListTask(TaskSpec):
    mode: Mode
    params: Annotated[list[dict[str, Scalar]], Field(min_length=1, max_length=10_000)]


class ManifoldTask(TaskSpec):
    mode: Mode
    manifold: dict[str, ManifoldAxis] | None = None
    manifolds: list[dict[str, ManifoldAxis]] = Field(default_factory=list, max_length=100)

    def list_manifolds(self) -> list[dict[str, ManifoldAxis]]:
        """Return the manifolds in the order of the file."""
        return ([self.manifold] if self.manifold is not None else []) + self.manifolds

    @model_validator(mode="after")
    def _require_manifold(self) -> ManifoldTask:
        if not self.list_manifolds():
            raise ValueError("mode manifold needs a manifold, here or in the task's file")
        return self


TASK_CLASSES: dict[str, type[TaskSpec]] = {"grid": GridTask, "list": ListTask, "manifold": ManifoldTask}


def _read_mode(content: Any) -> str:
    """Return the mode that determines a task's fields. An invalid mode is reported on the field `mode` of a grid."""
    mode = content.get("mode", "grid") if isinstance(content, dict) else getattr(content, "mode", "grid")
    return mode if isinstance(mode, str) and mode in MODES else "grid"


Task = Annotated[
    Annotated[GridTask, Tag("grid")] | Annotated[ListTask, Tag("list")] | Annotated[ManifoldTask, Tag("manifold")],
    Discriminator(_read_mode),
]


class SpaceSpec(StrictModel):
    """The whole content of a file."""

    MAX_TASKS: ClassVar[int] = 100

    name: Name
    precision: dict[str, Precision] = Field(default_factory=dict, max_length=20)
    tasks: list[Task] = Field(min_length=1, max_length=MAX_TASKS)
    _notes: tuple[str, ...] = PrivateAttr(())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each field of the file that was left out or is read in another way."""
        return self._notes

    @field_validator("tasks")
    @classmethod
    def _check_names(cls, tasks: list[Any], info: ValidationInfo) -> list[Any]:
        names = [task.name for task in tasks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two tasks have the name {repeated[0]!r}")
        return tasks

    def choose_precision(self, name: str | None) -> tuple[str, Precision | None]:
        """Return the precision block of this name, or the first block; ("", None) if the file has no blocks.

        Raise SpaceError for an unknown name.
        """
        if name is None:
            return next(iter(self.precision.items()), ("", None))
        if name not in self.precision:
            raise SpaceError([f"precision: the file has {', '.join(self.precision) or 'none'}, not {name[:80]!r}"])
        return name, self.precision[name]


class TaskFile(StoppingFields):
    """The supported fields of a ReasonScape task file. `file` is its generator. Others are left out.

    Mode and parameters are checked in the task that names the file.
    """

    name: Name
    file: str | None = None
    label: str = Field("", max_length=200)
    mode: Any = None
    params: Any = None
    manifold: dict[str, ManifoldAxis] | None = None
    manifolds: list[dict[str, ManifoldAxis]] = Field(default_factory=list, max_length=100)
    degree: int | None = Field(None, ge=0, le=MAX_DEGREE)
    density: Density | None = None


def read_space(text: str, task_files: Mapping[str, str] | None = None) -> SpaceSpec:
    """Return the space of a YAML or JSON text. Raise SpaceError, which names each invalid field by its path.

    task_files: the texts of ReasonScape's task files, by the value of a task's field `file`. A task's own fields
    override those of its file; the file's `name` becomes `task`.
    """
    content = _parse(text)
    if not isinstance(content, dict):
        raise SpaceError(["a space is a mapping with name, precision and tasks"])
    notes: list[str] = []
    content = _leave_out(content, SPACE_FIELDS_LEFT_OUT, "", notes)
    if isinstance(tasks := content.get("tasks"), list):
        content["tasks"] = [
            _read_task(task, f"tasks[{place}]", task_files or {}, notes) for place, task in enumerate(tasks)
        ]
    spec = parse_space(content)
    spec._notes = tuple(notes)
    return spec


def find_task_files(text: str) -> list[str]:
    """Return the task files that a space references, each once. Raise SpaceError if the text is not YAML."""
    content = _parse(text)
    tasks = content.get("tasks") if isinstance(content, dict) else None
    names = [task.get("file") for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def parse_space(content: Any) -> SpaceSpec:
    """Return the space of parsed content. Raise SpaceError."""
    return _validate(SpaceSpec, content, "")


Spec = TypeVar("Spec", bound=StrictModel)


def _parse(text: str) -> Any:
    try:
        return parse_yaml(text)
    except YamlError as error:
        raise SpaceError([str(error)]) from None


def _validate(kind: type[Spec], content: Any, prefix: str) -> Spec:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        more = [f"and {len(problems) - MAX_PROBLEMS:,} more problems"] if len(problems) > MAX_PROBLEMS else []
        lines = [prefix + _describe_problem(problem, kind) for problem in problems[:MAX_PROBLEMS]]
        raise SpaceError(lines + more) from None


def _leave_out(content: Mapping[str, Any], reasons: Mapping[str, str], place: str, notes: list[str]) -> dict[str, Any]:
    """Return the content without these fields. `notes` gets a sentence for each."""
    notes += [f"{place}{name} is not used: {reasons[name]}." for name in content if name in reasons]
    return {name: value for name, value in content.items() if name not in reasons}


def _read_task(task: Any, path: str, task_files: Mapping[str, str], notes: list[str]) -> Any:
    """Return a task with the fields of its task file, in a mode of this site."""
    if not isinstance(task, dict):
        return task
    file = task.get("file")
    if isinstance(file, str) and file in task_files:
        task = _read_task_file(file, task_files[file], notes) | task
    task = _leave_out(task, TASK_FIELDS_LEFT_OUT, f"{path}.", notes)
    if task.get("mode") == CALIBRATE:
        has_manifold = "params" not in task and {"manifold", "manifolds"} & task.keys()
        task["mode"] = "manifold" if has_manifold else "grid"
        notes.append(f"{path}: mode calibrate is read as {task['mode']}. It has the parameters of the file only.")
    return task


def _read_task_file(name: str, text: str, notes: list[str]) -> dict[str, Any]:
    """Return the fields of a task file for the task that names it.

    A field that is unknown and not a misspelt one is ReasonScape's: it is left out.
    """
    content = _parse(text)
    if isinstance(content, dict):
        known = list(TaskFile.model_fields)
        unknown = [str(key) for key in content if key not in known and not did_you_mean(str(key)[:80], known)]
        reasons = {key: "the field is unknown here" for key in unknown} | TASK_FIELDS_LEFT_OUT
        content = _leave_out(content, reasons, f"{name}: ", notes)
    task_file = _validate(TaskFile, content, f"{name}: ")
    generators = [PurePosixPath(task_file.file or "").stem, task_file.name]
    task = next((name for name in generators if name in load_generators()), task_file.name)
    return {"task": task} | {key: value for key, value in content.items() if key not in ("name", "file")}


def _describe_problem(problem: Any, root: type[StrictModel]) -> str:
    """Return a sentence such as `tasks[2].manifold.length.windw: unknown field; did you mean window?`."""
    steps = list(problem["loc"])
    # The steps as in the file: without the mode, and with "resample:corner" as one field.
    named_steps: list[str | int] = []
    for step in [*steps[:2], *steps[3:]] if steps[:1] == ["tasks"] and len(steps) > 2 else steps:
        if named_steps and named_steps[-1] == "resample":
            named_steps[-1] = f"{RESAMPLE}{step}"
        elif step != "[key]":
            named_steps.append(step.strip() if isinstance(step, str) else step)
    path = join_path(named_steps)
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(str(steps[-1]).strip()[:80], _list_fields(steps, root))
        return f"{path}: unknown field" + (f"; {hint}" if hint else "")
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path or 'the file'}: {message[:1].lower()}{message[1:]}"


def _list_fields(steps: list[str | int], root: type[StrictModel]) -> list[str]:
    """Return the valid fields of the mapping that contains an unknown field."""
    parent = steps[:-1]
    if "window" in parent:
        return list(Window.model_fields)
    if "resample" in parent:
        return list(Resample.model_fields)
    if parent[:1] == ["precision"]:
        return list(Precision.model_fields)
    if len(parent) == 3 and parent[0] == "tasks":
        return list(TASK_CLASSES[str(parent[2])].model_fields)
    if not parent:
        return list(root.model_fields)
    manifold = any(step in ("manifold", "manifolds") for step in parent[3:] or parent)
    return ["range", "from", "to", "step", *(("window", f"{RESAMPLE}lowdef", f"{RESAMPLE}corner") if manifold else ())]
