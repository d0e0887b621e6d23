"""A task in the text of a space: reading it into the form of its parameters, and replacing it in the text."""

from __future__ import annotations

from typing import Any

import yaml

from datasets_app.parametric.manifolds import RESAMPLE
from datasets_app.parametric.spec import SpaceError, read_space
from evalsite.lib.text.strict_yaml import parse_yaml

WINDOW = ("head", "skip", "body")
DESIGN = ("params", "mode", "manifold")
"""The fields of a task that the form of its parameters writes. It keeps all other fields."""


def find_task(text: str, generator: str) -> dict[str, Any] | None:
    """Return the last task of this generator whose parameters the form can show, or None. The text may be invalid."""
    try:
        spec = read_space(text)
    except SpaceError:
        return None
    tasks: list[dict[str, Any]] = parse_yaml(text)["tasks"]
    names = [task.generator_name for task in spec.tasks]
    matches = [
        task
        for task, name in zip(tasks, names, strict=True)
        if name == generator and ("file" not in task and (task.get("mode", "grid") == "grid" or "manifold" in task))
    ]
    return matches[-1] if matches else None


def list_entries(task: dict[str, Any]) -> dict[str, str]:
    """Return the form entries for the task's parameters: `length`, `length-head` and so on."""
    axes = task.get("manifold") or task.get("params") or {}
    entries: dict[str, str] = {}
    for name, axis in axes.items():
        entries[name] = _format_axis(axis)
        window: dict[str, Any] = (axis.get("window") if isinstance(axis, dict) else None) or {}
        for field in WINDOW:
            if field in window:
                entries[f"{name}-{field}"] = str(window[field])
        if window and "skip" not in window:
            entries[f"{name}-skip"] = "0"  # Without it, the form would skip as many values as the degree.
    return entries


def _format_axis(axis: Any) -> str:
    if isinstance(axis, dict) and "from" in axis:
        step = f" step {axis['step']}" if "step" in axis else ""
        return f"{axis['from']}..{axis['to']}{step}"
    values = axis["range"] if isinstance(axis, dict) else axis
    return ", ".join(map(_format_value, values if isinstance(values, list) else [values]))


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_samples(task: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the samples by density of each parameter with a window. The form has no fields for them."""
    axes: dict[str, Any] = task.get("manifold") or {}
    return {
        name: {key: value for key, value in axis.items() if key.startswith(RESAMPLE)}
        for name, axis in axes.items()
        if isinstance(axis, dict) and ("window" in axis or any(key.startswith(RESAMPLE) for key in axis))
    }


def dump_task(task: dict[str, Any], indent: int = 2) -> str:
    """Return a task as an item of a list in YAML, with its lines indented."""
    text = yaml.dump([task], Dumper=_TaskTextDumper, sort_keys=False, default_flow_style=None, width=120)
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


class _TaskTextDumper(yaml.SafeDumper):
    """A dumper that writes no aliases, because the reader of spaces refuses them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def replace_task(text: str, task: dict[str, Any]) -> str | None:
    """Return the text with this task in place of the task with the same name. Other lines keep their comments.

    Return None if the existing task is missing or shares its lines with other tasks.
    """
    item = _find_item(text, task["name"])
    if item is None:
        return None
    lines = text.splitlines(keepends=True)
    start, end = item.start_mark.line, item.end_mark.line + (1 if item.flow_style else 0)
    end = min(end, len(lines))
    while end > start + 1 and (not (line := lines[end - 1].strip()) or line.startswith("#")):
        end -= 1  # Comments in front of the next task are not part of this one.
    if lines[start][: item.start_mark.column].strip() != "-":
        return None
    return "".join([*lines[:start], dump_task(task, lines[start].index("-")), *lines[end:]])


def _find_item(text: str, name: str) -> Any:
    """Return the node of the task in a list with one item on each line, or None."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    tasks = next((value for key, value in root.value if key.value == "tasks"), None)
    if tasks is None or tasks.flow_style:
        return None
    for item in tasks.value:
        if any(key.value == "name" and value.value == name for key, value in item.value):
            return item
    return None
