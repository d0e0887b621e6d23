"""docs/parametric-tasks.md names every task with its parameters, bounds and defaults."""

import re
from pathlib import Path

import pytest
from django.conf import settings

from datasets_app.generators.registry import load_generators
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space

PAGE = Path(settings.BASE_DIR) / "docs" / "parametric-tasks.md"


def describe_param(info):
    if info.kind == "choice":
        return f"`{info.name}` ({', '.join(info.options)}; {info.default})"
    if info.kind == "switch":
        return f"`{info.name}` (true or false, {str(info.default).lower()})"
    return f"`{info.name}` ({info.minimum:g} to {info.maximum:g}, {info.default:g})"


@pytest.mark.parametrize("name", load_generators())
def test_the_page_lists_each_task_with_its_parameters(name):
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    (entry,) = re.findall(rf"- \*\*{name}\*\*: (.*?)(?= - \*\*| ## )", text)
    assert entry.endswith(f"Parameters: {', '.join(map(describe_param, load_generators()[name].describe_params()))}.")


def test_the_example_on_the_page_gives_the_stated_values():
    example = PAGE.read_text(encoding="utf-8").split("wanted at each point:\n\n")[1].split("\n\n- **grid**")[0]
    spec = read_space("\n".join(line[4:] for line in example.split("\n")))
    lengths = [point.params["length"] for point in resolve_space(spec, degree=1).points if point.task == "brackets"]
    assert lengths == [16, 24, 32, 40]
    assert len(resolve_space(spec, degree=1, density="corner").points) == 6 + 2 + 2
