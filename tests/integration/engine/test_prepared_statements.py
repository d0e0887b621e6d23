"""Prepared statements are sent together, and behave as those of Django's own cursors."""

import uuid
from decimal import Decimal

import pytest
from django.db import DataError, InternalError, OperationalError, ProgrammingError, connection, transaction

from runs_app.engine import prepared_sql
from runs_app.engine.prepared_sql import fetch_and_commit, fetch_pipelined, fetch_prepared

ECHO = "SELECT %s::text"
DIVIDE = "SELECT 1 / %s::int"


def read_prepared():
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE name LIKE 'engine_%'")
        return [statement for (statement,) in cursor.fetchall()]


@pytest.mark.django_db
def test_values_arrive_and_return_unchanged():
    key = uuid.uuid4()
    sql = "SELECT %s::int, %s::numeric, %s::uuid, %s::bool, %s::bigint[], %s::text, %s::json, '100%%'"
    values = [7, Decimal("0.10"), key, True, [1, 2], None, '{"a": ["\N{SNOWMAN}", "%s"]}']
    assert fetch_prepared(sql, *values) == [
        (7, Decimal("0.10"), key, True, [1, 2], None, {"a": ["\N{SNOWMAN}", "%s"]}, "100%")
    ]
    assert fetch_prepared("SELECT %s::bigint[]", []) == [([],)]


@pytest.mark.django_db
def test_each_statement_has_its_own_rows_and_is_prepared_once():
    statements = (ECHO, ["a"]), ("SELECT WHERE %s", [False]), ("SET LOCAL lock_timeout TO 0", ()), (ECHO, ["b"])
    for _ in range(2):
        assert fetch_pipelined(*statements) == [[("a",)], [], [], [("b",)]]
    prepared = read_prepared()
    assert len(prepared) == len(set(prepared)), "the same statement was prepared twice"
    assert "SELECT $1::text" in prepared


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_fails_ends_its_transaction_and_not_its_session():
    session = connection.connection
    with pytest.raises(DataError, match="division by zero"), transaction.atomic():
        fetch_pipelined((ECHO, ["first"]), (DIVIDE, [0]), ("SELECT 'never sent before', %s::int", [1]))
    assert fetch_prepared("SELECT 'never sent before', %s::int", 1) == [("never sent before", 1)]
    assert fetch_pipelined((DIVIDE, [1]), (ECHO, ["first"])) == [[(1,)], [("first",)]]
    with pytest.raises(ProgrammingError, match="no_such_table"):
        fetch_pipelined(("SELECT * FROM no_such_table", ()), (ECHO, ["after"]))
    assert fetch_prepared(ECHO, "after") == [("after",)]
    assert session is None or connection.connection is session


@pytest.mark.django_db(transaction=True)
def test_a_statement_after_a_failure_in_the_same_transaction_is_refused():
    with transaction.atomic():
        with pytest.raises(DataError):
            fetch_prepared(DIVIDE, 0)
        with pytest.raises(InternalError, match="current transaction is aborted"):
            fetch_prepared(ECHO, "a")
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_a_transaction_begins_with_its_first_statement_and_ends_with_its_last():
    status = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL, now() = statement_timestamp()"
    with transaction.atomic():
        fetch_prepared("CREATE TEMP TABLE kept (value int)")
        assert fetch_prepared("INSERT INTO kept VALUES (%s) RETURNING value", 1) == [(1,)]
        assert fetch_prepared(status)[0][0] is True
        assert fetch_and_commit(("INSERT INTO kept VALUES (%s) RETURNING value", [2])) == [[(2,)]]
    with transaction.atomic():
        fetch_prepared("INSERT INTO kept VALUES (%s) RETURNING value", 3)
        transaction.set_rollback(True)
    assert fetch_prepared("SELECT array_agg(value ORDER BY value) FROM kept") == [([1, 2],)]
    fetch_prepared("DROP TABLE kept")


@pytest.mark.django_db
def test_large_requests_and_large_answers_do_not_wait_for_each_other():
    text = "x" * 8_000_000  # More than the buffers of the socket hold in both directions.
    rows = fetch_pipelined(*[(ECHO, [text])] * 6)
    assert [len(row[0]) for (row,) in rows] == [len(text)] * 6


@pytest.mark.django_db(transaction=True)
def test_a_session_that_the_server_ended_raises_an_error_of_the_connection_and_is_replaced():
    own = fetch_prepared("SELECT pg_backend_pid()")[0][0]
    with pytest.raises(OperationalError):
        fetch_pipelined(("SELECT pg_terminate_backend(%s), pg_sleep(30)", [own]), (ECHO, ["never"]))
    connection.close()
    assert fetch_prepared(ECHO, "again") == [("again",)]
    assert fetch_prepared("SELECT pg_backend_pid()")[0][0] != own


@pytest.mark.django_db(transaction=True)
def test_an_interrupted_wait_leaves_no_answer_for_the_next_statement(monkeypatch):
    fetch_prepared(ECHO, "first")

    class Interrupted:
        def modify(self, *_arguments):
            raise KeyboardInterrupt

    monkeypatch.setattr(prepared_sql._thread.session, "_readiness", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fetch_prepared("SELECT pg_sleep(0.2), %s::text", "of the interrupted statement")
    connection.close()
    assert fetch_prepared(ECHO, "next") == [("next",)]
