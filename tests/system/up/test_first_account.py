"""`up` on an empty database prints a link to the first account, and nothing else holds its code."""

import re
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.system.postgres.conftest import query
from tests.system.up.conftest import Site, wait_until

pytestmark = pytest.mark.processes


def read_link(site: Site) -> str:
    return re.search(r"http://127\.0\.0\.1:\d+/welcome/#\S+", site.read_log())[0]


def test_up_prints_the_link_once_and_no_other_line_or_file_holds_its_code(site: Site) -> None:
    wait_until(lambda: "/welcome/#" in site.read_log())
    address, code = read_link(site).split("#")
    assert address == f"http://127.0.0.1:{site.port}/welcome/"
    assert b"Create account" in site.get("/welcome/")
    assert b"no accounts yet" in site.get("/accounts/login/")
    assert site.read_log().count(code) == 1
    data = Path(site.place) / "data"
    files = [path for path in data.rglob("*") if path.is_file() and "postgres" not in path.relative_to(data).parts]
    assert files
    assert not [path for path in files if code.encode() in path.read_bytes()]

    site.manage("createsuperuser", "--noinput", "--username=ada", "--email=ada@lab.example")
    stored = "SELECT count(*) FROM lib_signinlink WHERE length(code_hash) = 64 AND code_hash <> '" + code + "'"
    assert query(Embedded(data / "postgres"), stored) == 1
    assert b"no accounts yet" not in site.get("/accounts/login/")
