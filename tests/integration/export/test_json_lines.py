"""JSON lines: assembled from fragments, and byte for byte equal to PostgreSQL's JSON of the row."""

import pytest
from django.db import connection

from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.models.gradings import allow_superseding
from grading_app.publish.export.file_formats import TABLES, export_chunks
from runs_app.models import Point, Trial
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.judges import write_ledger

pytestmark = pytest.mark.django_db

EVERYTHING = "".join(map(chr, [*range(1, 0x180), 0x2028, 0x2029, 0xFEFF, 0xFFFD, 0x1F600, 0x10FFFF]))
NASTY = ["", 'a "quoted" \\ back\\\\slash', "two\nlines\r\n\ttab", EVERYTHING]


@pytest.fixture
def experiment():
    """Return an experiment with difficult values of each column type: texts, numbers, times, JSON and NULL."""
    dataset = factories.make_dataset(
        items=[{"key": 'a"\\', "input": EVERYTHING, "metadata": {'"': [None, EVERYTHING[31:]]}}]
    )
    created = factories.make_experiment(dataset=dataset, samples=len(NASTY))
    (run,) = factories.make_runs(created)
    factories.plan_trials(
        run, answer=lambda item, _, index: {"answer": NASTY[index], "cost_usd": None if index else "0.10000000"}
    )
    for trial in Trial.objects.all():
        factories.make_attempt(trial, error=trial.answer)
    write_ledger(created)
    Point.objects.create(run=run, items=[], n_items=0, key={"n\n": 1e300}, reason=EVERYTHING, mean=0.1 + 0.2)
    grade(created, scorers=[{"name": "regex", "pattern": "a"}], by="test")
    with allow_superseding():
        Grading.objects.filter(trial__answer="").update(
            parse_ok=True, parse_error="", score=0.1 + 0.2, detail={"votes": 2}
        )
    (note,) = annotate(Trial.objects.first(), "note", EVERYTHING, by=created.owner)
    note.change_text(NASTY[1], by=created.owner)
    return created


def export_by_postgresql(experiment, table):
    utc = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    cells = [(utc.format(some.sql) if some.kind == "time" else some.sql, some.name) for some in table.columns]
    columns = ", ".join(f"{sql} AS {name}" for sql, name in cells)
    lines = f"SELECT row_to_json(line)::text FROM (SELECT {columns} {table.rows} {table.ordering}) AS line"
    arguments = {"experiment": experiment.pk, "low": 0, "high": 2**62}
    lines_written = []
    with connection.cursor() as cursor:
        cursor.execute(f"{table.sections} ORDER BY id", arguments)
        for (section,) in cursor.fetchall():
            cursor.execute(lines, {**arguments, "section": section})
            lines_written += [f"{line}\n" for (line,) in cursor.fetchall()]
    return "".join(lines_written).encode()


def test_each_line_equals_postgresqls_json_byte_for_byte(experiment):
    exported = {name: b"".join(export_chunks(experiment, name, "jsonl")) for name in TABLES}
    assert exported == {name: export_by_postgresql(experiment, table) for name, table in TABLES.items()}
    assert {name for name, lines in exported.items() if not lines} == {"preferences", "ratings"}
