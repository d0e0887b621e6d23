"""Pilots: a few trials of a design, which run first. The full launch does not repeat them."""

from __future__ import annotations

from typing import Any

from django.db import connection

from runs_app.engine.shuffled_order import make_place_sql
from runs_app.models import Run
from runs_app.planning.conditions import get_condition_hash
from runs_app.planning.design import Design

DEFAULT_TRIALS = 20  # Enough to cover each part of a typical design, at almost no cost.

# An item repeats only after all other items of the dataset. The order depends only on names, so a larger pilot keeps
# the trials of a smaller one. It is the same for all conditions, so a pilot compares them on common items.
MISSING = """(
    (SELECT item, dimension FROM (
        SELECT item.id AS item, dimension.id AS dimension, md5(item.key) AS draw,
            row_number() OVER (
                PARTITION BY item.id ORDER BY md5(concat_ws('/', item.key, dimension.name))
            ) AS turn
        FROM (SELECT id, key FROM datasets_app_item WHERE dataset_id = %(dataset)s AND NOT excluded
            AND (%(items)s::bigint[] IS NULL OR id = ANY(%(items)s))) AS item
        CROSS JOIN unnest(%(dimensions)s::bigint[], %(names)s::text[]) AS dimension (id, name)
    ) AS question ORDER BY turn, draw LIMIT %(share)s)
    EXCEPT
    SELECT item_id, dimension_id FROM runs_app_trial WHERE run_id = %(run)s AND sample_idx = 0
    ORDER BY 1, 2
) AS missing
"""
INSERT_PILOT = f"""INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, place)
SELECT %(run)s, 0, missing.*, {make_place_sql("missing.item", "0")} FROM {MISSING}"""  # noqa: S608 - the text above
COUNT_MISSING = f"SELECT count(*) FROM {MISSING}"  # noqa: S608 - the text above


def share_pilot(design: Design, pilot: int) -> list[int]:
    """Return the number of a pilot's trials for each cell of the design. The numbers differ by at most one.

    The cells' hashes decide which cells get one trial more, so that no model is left out because of its name.
    """
    hashes = [get_condition_hash(cell.condition_id) for cell in design.cells]
    each, more = divmod(pilot, max(1, len(hashes)))
    shares = [min(each, design.questions)] * len(hashes)
    for at in sorted(range(len(hashes)), key=hashes.__getitem__)[:more]:
        shares[at] = min(each + 1, design.questions)
    return shares


def insert_share(design: Design, share: int, run: Run) -> int:
    """Insert those of a run's first `share` trials that are missing. Return their number."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT_PILOT, _build_parameters(design, run, share))
        return int(cursor.rowcount)


def count_missing(design: Design, run: Run, share: int) -> int:
    """Return how many of a run's first `share` trials are missing."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT_MISSING, _build_parameters(design, run, share))
        return int(cursor.fetchone()[0])


def _build_parameters(design: Design, run: Run, share: int) -> dict[str, Any]:
    return {
        "run": run.pk,
        "shuffle": design.experiment.shuffle,
        "dataset": design.experiment.dataset_id,
        "dimensions": [dimension.pk for dimension in design.dimensions] or [None],
        "names": [dimension.name for dimension in design.dimensions] or [None],
        "share": share,
        "items": design.dev_item_ids,
    }
