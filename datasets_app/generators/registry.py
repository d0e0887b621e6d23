"""The registry of tasks: every module of this package with a GENERATOR."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import datasets_app.generators as package
from evalsite.lib.text.names import did_you_mean

if TYPE_CHECKING:
    from datasets_app.generators.generator import Generator  # Imports pydantic, which the models do not need.


class UnknownTask(ValueError):
    """An unknown task name. The message suggests the closest name, or lists all names."""


@cache
def load_generators() -> dict[str, Generator]:
    """Return every task by its name, in alphabetical order."""
    modules = (import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__))
    tasks = [module.GENERATOR for module in modules if hasattr(module, "GENERATOR")]
    generators = {task.name: task for task in sorted(tasks, key=lambda task: task.name)}
    if len(generators) < len(tasks):
        raise TypeError(f"two tasks have the same name: {sorted(task.name for task in tasks)}")
    return generators


def get_generator(name: str) -> Generator:
    """Return the task of this name. Raise UnknownTask."""
    generators = load_generators()
    if name not in generators:
        hint = did_you_mean(name[:80], generators)
        remedy = f"; {hint}" if hint else f": choose {', '.join(generators)}"
        raise UnknownTask(f"{name[:80]!r} is not a task{remedy}")
    return generators[name]
