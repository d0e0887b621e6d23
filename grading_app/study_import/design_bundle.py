"""The import of a design: it uses rows that this site has already, and says what is left to do before a launch.

A dataset, prompt, sampler or dimension with the same content, and a model with the same name and id, are used as they
are. All others are created: models as placeholders without an endpoint.
"""

# ruff: noqa: S608 (names of tables come from the models of this project, values are parameters)

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import connection, models

from datasets_app.models import Asset, Dataset, Item, Norm, ParametricSpace
from grading_app.models import Grader
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Prompt, Sampler

ROWS_OF, KEYS = "import_rows_", "import_keys_"  # The prefixes of the temporary tables of an import.
OF_DATASET = (Item, Norm, ParametricSpace, Asset)
Names = Mapping[str, Mapping[str, str]]


def reuse_rows(names: Names) -> list[str]:
    """Point the keys of rows that this site has to these, and take them out of the rows to insert.

    Return a sentence for each. names: of rows by table and number, as in the file.
    """
    remarks = []
    for model in (Dataset, LanguageModel, Prompt, Sampler, Dimension):
        for old, line in _lines(model):
            found = _find(model, str(names[model._meta.db_table][str(old)]), line)
            if found is None:
                continue
            _execute(f"UPDATE {KEYS}{model._meta.db_table} SET new = %s WHERE old = %s", [found.pk, old])
            _execute(f"DELETE FROM {ROWS_OF}{model._meta.db_table} WHERE (line ->> 'id')::bigint = %s", [old])
            remarks.append(f"The {model._meta.verbose_name} {found} is here already and is used.")
            if model is Dataset:
                for part in OF_DATASET:
                    _execute(f"DELETE FROM {ROWS_OF}{part._meta.db_table}")
    _execute(
        f"""DELETE FROM {ROWS_OF}{Endpoint._meta.db_table} e WHERE NOT EXISTS (
        SELECT FROM {ROWS_OF}{LanguageModel._meta.db_table} m WHERE m.line ->> 'endpoint_id' = e.line ->> 'id')"""
    )
    return remarks


def _find(model: type[models.Model], name: str, line: Mapping[str, Any]) -> models.Model | None:
    """Return the row of this site that is the same as the one in the file, or None."""
    rows: Any = model._default_manager
    if model is LanguageModel:
        providers = {old: endpoint["provider"] for old, endpoint in _lines(Endpoint)}
        wanted = {"model": line["model"], "endpoint__provider": providers[line["endpoint_id"]]}
        found: models.Model | None = rows.filter(name=name, **wanted).first()
        return found
    same = rows.filter(content_hash=line["content_hash"], status="approved").exclude(content_hash="")
    newest: models.Model | None = (same if model is Dataset else same.filter(name=name)).order_by("-version").first()
    return newest


def complete_design(experiment: Experiment) -> list[str]:
    """Leave out judges that this site does not have. Return sentences about these, and about models to complete."""
    remarks = []
    here = set(Grader.objects.filter(name__in=experiment.graders).values_list("name", flat=True))
    if missing := [name for name in experiment.graders if name not in here]:
        experiment.graders = [name for name in experiment.graders if name in here]
        Experiment.objects.filter(pk=experiment.pk).update(graders=experiment.graders)
        remarks.append(f"A design holds no judges; these are not here and were left out: {', '.join(missing)}.")
    placeholders = experiment.language_models.filter(is_active=False).order_by("name").values_list("name", flat=True)
    if placeholders:
        named = ", ".join(placeholders)
        remarks.append(f"Models without an active endpoint: {named}. Choose models of this site before the launch.")
    return remarks


def _lines(model: type[models.Model]) -> list[tuple[int, dict[str, Any]]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT (line ->> 'id')::bigint, line FROM {ROWS_OF}{model._meta.db_table} ORDER BY place")
        return [(old, line if isinstance(line, dict) else json.loads(line)) for old, line in cursor.fetchall()]


def _execute(statement: str, params: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
