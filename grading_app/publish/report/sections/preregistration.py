"""Preregistration: the frozen plan, what differs from it, and which results were planned."""

from __future__ import annotations

from evalsite.lib.text.hashing import hash_content
from evalsite.lib.text.names import UnknownNameError
from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import join_words
from grading_app.results.scores import Measure, list_measures, match_measure
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Preregistration
from runs_app.planning.spec_io import build_spec


def write_blocks(source: ReportSource) -> list[Block | None]:
    plan = Preregistration.objects.filter(experiment=source.experiment).first()
    if plan is None:
        return []
    page = source.get_url("experiment_preregistration")
    differences = []
    if hash_content(build_spec(source.experiment)) != plan.content["design"]:
        differences.append("The design differs from the design at that time.")
    eligible = set(plan.content["eligible_models"])
    models = {name for row in source.generation_conditions for name in [row.model.name] if name not in eligible}
    if models:
        differences.append(f"Not among the eligible models, and therefore exploratory: {join_words(sorted(models))}.")
    missing = [name for name in plan.measures if _find_measure(source.measures, name) is None]
    if missing:
        differences.append(f"Planned measures without scores: {join_words(missing)}.")
    head = make_paragraph(
        make_sentence(
            f"The plan was frozen {plan.frozen_at:%Y-%m-%d %H:%M} UTC, before the first call (SHA-256 {plan.digest}). ",
            page,
        ),
        make_sentence(" ".join(differences or ["Design, models and measures are those of the plan."]), page),
    )
    parts = [{"part": heading, "text": text or "None."} for heading, text in plan.parts]
    table = ResultTable(
        "preregistration", "The plan", [ResultColumn("part", "Part"), ResultColumn("text", "Text")], parts
    )
    return [head, make_table_block(table, rows=page), _write_measures(source, plan)]


def _find_measure(measures: list[Measure], name: str) -> Measure | None:
    try:
        return match_measure(measures, name)
    except UnknownNameError:
        return None


def _write_measures(source: ReportSource, plan: Preregistration) -> Block | None:
    """Return a table that separates the planned measures from the exploratory ones."""
    known = list_measures(source.experiment)
    planned = {measure.key: at for at, name in enumerate(plan.measures) if (measure := _find_measure(known, name))}
    rows = [
        {
            "measure": measure.label,
            "role": ("primary" if planned[measure.key] == 0 else "secondary")
            if measure.key in planned
            else "exploratory",
        }
        for measure in sorted(source.measures, key=lambda one: planned.get(one.key, len(planned)))
    ]
    if not rows:
        return None
    columns = [ResultColumn("measure", "Measure"), ResultColumn("role", "Role")]
    table = ResultTable("planned_measures", "Planned and exploratory measures", columns, rows)
    return make_table_block(table, rows=source.get_url("experiment_results"))
