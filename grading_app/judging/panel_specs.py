"""The conversion of panels from and to files. A file names existing graders."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from grading_app.judging import panels
from grading_app.models import Grader, Panel
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.spec_types import Name, Strict

PARTS = ("rubric", "language_model__endpoint", "sampler", "text_set")


class PanelSpec(Strict):
    """Several graders and the rule that combines their scores of one answer."""

    name: Name
    graders: list[Name]
    rule: Literal["mean", "median", "majority"] = "mean"
    quorum: int | None = Field(default=None, ge=1)


def build_panel(builder: RowBuilder, spec: PanelSpec) -> tuple[Panel | None, bool]:
    """Return the panel of this definition, and whether it is new. Add each problem to the builder's problems."""
    rows = Grader.objects.in_use().filter(name__in=spec.graders)
    graders_by_name = {row.name: row for row in rows.select_related(*PARTS)}
    for index, name in enumerate(spec.graders):
        if name not in graders_by_name:
            builder.problems.append(
                f"panel.graders[{index}]: there is no grader {name} in use; `grader list` lists them"
            )
        elif name in spec.graders[:index]:
            builder.problems.append(f"panel.graders[{index}]: {name} is named twice")
    if not builder.problems:
        graders = [graders_by_name[name] for name in spec.graders]
        builder.problems += [f"panel.graders: {problem}" for problem in panels.find_member_problems(graders)]
        if spec.quorum and spec.quorum > len(graders):
            builder.problems.append(f"panel.quorum: the panel has {len(graders)} graders; enter at most this number")
    graders = list(graders_by_name.values())
    existing: Panel | None = Panel.objects.filter(name=spec.name).prefetch_related("graders").first()
    if existing is not None and write_panel_spec(existing) != {
        **spec.model_dump(exclude_none=True),
        "graders": sorted(spec.graders),
    }:
        builder.problems.append(f"panel.name: another panel {spec.name} exists; choose a different name")
    if builder.problems or existing is not None:
        return existing, False
    panel = Panel(name=spec.name, rule=spec.rule, quorum=spec.quorum, created_by=builder.by)
    if not builder.save("panel", panel):
        return None, False
    panel.graders.set(graders)
    return panel, True


def write_panel_spec(panel: Panel) -> dict[str, Any]:
    """Return the panel in the format of a file."""
    return {
        "name": panel.name,
        "graders": sorted(grader.name for grader in panel.graders.all()),
        "rule": panel.rule,
        **({"quorum": panel.quorum} if panel.quorum else {}),
    }
