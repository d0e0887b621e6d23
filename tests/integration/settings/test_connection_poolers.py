"""A connection pooler that gives each transaction another session is refused with a remedy; others are accepted."""

import psycopg
import pytest

from evalsite.lib.ops import connection_pooler
from evalsite.lib.ops.environment import SettingError
from evalsite.lib.ops.failed_commands import explain_failure

pytestmark = pytest.mark.django_db


def test_postgresql_itself_is_accepted_after_one_query(django_assert_num_queries):
    with django_assert_num_queries(1):
        connection_pooler.refuse_transaction_pooling()


def test_a_pooler_in_transaction_mode_is_refused(monkeypatch):
    """The first connection is idle, so the second transaction gets its session."""
    monkeypatch.setattr(connection_pooler, "_get_session", lambda cursor: 7)
    with pytest.raises(SettingError, match="a pool in session mode"):
        connection_pooler.refuse_transaction_pooling()


def test_a_busy_pooler_in_transaction_mode_is_refused(monkeypatch):
    sessions = iter([1, 2, 3])
    monkeypatch.setattr(connection_pooler, "_get_session", lambda cursor: next(sessions))
    with pytest.raises(SettingError, match="transaction mode"):
        connection_pooler.refuse_transaction_pooling()


def test_a_pooler_in_session_mode_is_accepted(monkeypatch):
    sessions = {}
    monkeypatch.setattr(
        connection_pooler, "_get_session", lambda cursor: sessions.setdefault(cursor.db, -len(sessions) - 1)
    )
    connection_pooler.refuse_transaction_pooling()
    assert len(sessions) == 2


def test_a_pooler_that_refuses_our_time_outs_is_explained():
    failure = explain_failure(psycopg.OperationalError("FATAL:  unsupported startup parameter: options"))
    assert "ignore_startup_parameters = options in pgbouncer.ini" in str(failure)
