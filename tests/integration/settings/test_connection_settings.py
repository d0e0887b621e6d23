"""Settings of database connections that release the locks of a lost machine."""

import pytest
from django.db import connection

from evalsite import settings as site_settings

pytestmark = pytest.mark.django_db


def show_setting(name):
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return cursor.fetchone()[0]


def test_a_session_idle_in_a_transaction_is_ended():
    """A session of the site is, but not a session of the tests, which may compute for minutes in a transaction."""
    name = "idle_in_transaction_session_timeout"
    options = site_settings._build_database_settings()["OPTIONS"]["options"]
    with connection.get_new_connection({**connection.get_connection_params(), "options": options}) as session:
        assert session.execute(f"SHOW {name}").fetchone()[0] == "1min"
    assert show_setting(name) == "0"


def test_both_ends_of_a_connection_over_the_network_notice_that_the_other_is_gone():
    show_setting("server_version")
    parameters = connection.connection.info.get_parameters()
    assert parameters["keepalives_idle"] == "10"
    assert parameters["tcp_user_timeout"] == "25000"
    if connection.connection.info.host.startswith("/"):
        pytest.skip("the server of these tests is on a Unix socket, which tells both ends by itself")
    assert [show_setting(f"tcp_keepalives_{name}") for name in ("idle", "interval", "count")] == ["10", "5", "3"]


def test_the_url_may_override_the_options(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://lab@db/site?connect_timeout=3&options=-c%20work_mem%3D8MB")
    options = site_settings._build_database_settings()["OPTIONS"]
    assert options["connect_timeout"] == "3"
    assert options["options"].startswith("-c tcp_keepalives_idle=10")
    assert options["options"].endswith(" -c work_mem=8MB")
