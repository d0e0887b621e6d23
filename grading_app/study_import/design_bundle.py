"""The import of a design: it uses existing rows of this site, and lists the remaining steps before a launch.

Existing rows are used without changes. A definition (dataset, prompt, sampler, dimension, rubric, item rubrics) matches
by content, a model by name and id, and a judge or panel by name and parts. All others are created: models as
placeholders without an endpoint, rating queues as drafts, definitions as imported ones that a curator must approve.
"""

# ruff: noqa: S608 (names of tables come from the models of this project, values are parameters)

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import models
from django.db.models import Q

from datasets_app.models import Asset, Dataset, Item, Norm, ParametricSpace
from grading_app.models import Grader, Panel, RatingQueue, Rubric
from grading_app.study_import.row_writer import KEYS, ROWS_OF, execute, map_keys, read_lines
from runs_app.models import Dimension, Endpoint, Experiment, ItemText, LanguageModel, Prompt, Sampler, TextSet

OF_DATASET = (Item, Norm, ParametricSpace, Asset)
# In an order in which each model follows those that it refers to.
REUSED = (Dataset, LanguageModel, Prompt, Sampler, Dimension, Rubric, TextSet, Grader, Panel)
PANEL_GRADERS = Panel.graders.through
PARTS = (
    (TextSet, ItemText._meta.db_table, "text_set_id"),
    (Panel, PANEL_GRADERS._meta.db_table, "panel_id"),
)
Names = Mapping[str, Mapping[str, str]]


def reuse_rows(names: Names) -> list[str]:
    """Point the keys of rows that this site has to these, and take them out of the rows to insert.

    Return a sentence for each. names: of rows by table and number, as in the file.
    """
    remarks = []
    for model in REUSED:
        for old, line in read_lines(model):
            row = _find_same_row(model, names[model._meta.db_table][str(old)], line)
            if row is None:
                continue
            execute(f"UPDATE {KEYS}{row._meta.db_table} SET new = %s WHERE old = %s", [row.pk, old])
            execute(f"DELETE FROM {ROWS_OF}{row._meta.db_table} WHERE id = %s", [old])
            if isinstance(row, Dataset):
                # Item rubrics of the file may refer to these items.
                execute(
                    f"""UPDATE {KEYS}{Item._meta.db_table} k SET new = i.id
                    FROM {ROWS_OF}{Item._meta.db_table} r JOIN {Item._meta.db_table} i ON i.key = r.line ->> 'key'
                    WHERE i.dataset_id = %s AND r.id = k.old""",
                    [row.pk],
                )
                for part in OF_DATASET:
                    execute(f"DELETE FROM {ROWS_OF}{part._meta.db_table}")
            for whole_model, parts, column in PARTS:
                if isinstance(row, whole_model):
                    execute(f"DELETE FROM {ROWS_OF}{parts} WHERE (line ->> '{column}')::bigint = %s", [old])
            remarks.append(f"The {model._meta.verbose_name} {row} is here already and is used.")
    execute(
        f"""DELETE FROM {ROWS_OF}{Endpoint._meta.db_table} e WHERE NOT EXISTS (
        SELECT FROM {ROWS_OF}{LanguageModel._meta.db_table} m WHERE m.line ->> 'endpoint_id' = e.line ->> 'id')"""
    )
    return remarks


def _find_same_row(model: type[models.Model], name: str, line: Mapping[str, Any]) -> models.Model | None:
    """Return the row of this site that is the same as the one in the file, or None."""
    rows: Any = model._default_manager
    row: Any
    if model is LanguageModel:
        providers = {old: endpoint["provider"] for old, endpoint in read_lines(Endpoint)}
        identity = {"model": line["model"], "endpoint__provider": providers.get(line["endpoint_id"])}
        row = rows.filter(name=name, **identity).first()
    elif model is Grader:
        # The fields that make a judge the same as the one in the file.
        parts = {"language_model": LanguageModel, "rubric": Rubric, "sampler": Sampler, "text_set": TextSet}
        # A part that is still to be inserted has a key that no row has. A judge without one has no such part.
        keys = {
            name: None if line[f"{name}_id"] is None else map_keys(model).get(line[f"{name}_id"], 0)
            for name, model in parts.items()
        }
        row = rows.filter(
            name=name,
            archived_at=None,
            **keys | {"on_empty": line["on_empty"], "longest_answer": line["longest_answer"]},
        ).first()
    elif model is Panel:
        row = rows.filter(name=name, rule=line["rule"], quorum=line["quorum"]).first()
        members = [part["grader_id"] for _, part in read_lines(PANEL_GRADERS) if part["panel_id"] == line["id"]]
        grader_keys = {map_keys(Grader).get(member) for member in members}
        if row is not None and set(row.graders.values_list("pk", flat=True)) != grader_keys:
            row = None
    else:
        versions = rows.filter(content_hash=line["content_hash"], status="approved").exclude(content_hash="")
        if model is TextSet:
            versions = versions.filter(dataset=map_keys(Dataset).get(line["dataset_id"], 0))
        row = (versions if model is Dataset else versions.filter(name=name)).order_by("-version").first()
    found: models.Model | None = row
    return found


def complete_design(experiment: Experiment, names: Names) -> list[str]:
    """Give the design the names of its judges on this site. Return sentences about what is left to do.

    names: of rows by table and number, as in the file.
    """
    keys, names_in_file = map_keys(Grader), names[Grader._meta.db_table]
    names_here = dict(Grader.objects.filter(pk__in=keys.values()).values_list("pk", "name"))
    local_names = {names_in_file[str(old)]: names_here[new] for old, new in keys.items() if new in names_here}
    unknown_graders = [name for name in experiment.graders if name not in local_names]
    experiment.graders = [local_names[name] for name in experiment.graders if name in local_names]
    Experiment.objects.filter(pk=experiment.pk).update(graders=experiment.graders)
    remarks = []
    if unknown_graders:
        remarks.append(f"Judges that are not in the file were left out of the design: {', '.join(unknown_graders)}.")
    judges = Grader.objects.filter(name__in=experiment.graders).values("rubric")
    asked = RatingQueue.objects.filter(experiment=experiment).values("rubric")
    rubrics = Rubric.objects.filter(Q(pk__in=judges) | Q(pk__in=asked))
    if waiting := [
        f"{row._meta.verbose_name} {row}"
        for rows in (experiment.prompts.all(), rubrics)
        for row in rows.filter(status="imported").order_by("name", "version")
    ]:
        remarks.append(f"A curator must approve these before they are used: {', '.join(waiting)}.")
    if answering := _list_inactive(experiment.language_models.all()):
        inactive = ", ".join(answering)
        remarks.append(f"Models without an active endpoint: {inactive}. Choose models of this site before the launch.")
    if judging := _list_inactive(LanguageModel.objects.filter(graders__in=keys.values())):
        inactive = ", ".join(judging)
        remarks.append(
            f"Models of judges without an active endpoint: {inactive}. Give them an endpoint with a key and prices, "
            "and activate them, before they judge."
        )
    if queues := RatingQueue.objects.filter(experiment=experiment).order_by("name").values_list("name", flat=True):
        remarks.append(
            f"Rating queues are drafts and ask about the answers of all conditions: {', '.join(queues)}. "
            "Check them, and open them once there are answers."
        )
    return remarks


def _list_inactive(rows: Any) -> Iterable[str]:
    names: Iterable[str] = rows.filter(is_active=False).order_by("name").values_list("name", flat=True).distinct()
    return names
