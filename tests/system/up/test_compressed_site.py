"""`up` serves compressed pages, and static files that browsers may keep for ever."""

import gzip
import re
import urllib.error
import urllib.request

import pytest

from tests.system.up.conftest import Site

pytestmark = pytest.mark.processes
LOGIN = "/accounts/login/"


def open_path(site: Site, path: str, *, accepts: str = "gzip"):
    address = f"http://127.0.0.1:{site.port}{path}"
    request = urllib.request.Request(address, headers={"Accept-Encoding": accepts})
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return response.headers, response.read()


def list_files_of_login_page(site: Site) -> list[str]:
    return re.findall(r'(?:href|src)="(/static/[^"#]+)', open_path(site, LOGIN, accepts="identity")[1].decode())


def test_pages_and_their_files_arrive_compressed(lasting_site: Site) -> None:
    headers, body = open_path(lasting_site, LOGIN)
    assert headers["Content-Encoding"] == "gzip"
    assert b"</html>" in gzip.decompress(body)
    sizes = {}
    for path in list_files_of_login_page(lasting_site):
        headers, packed = open_path(lasting_site, path)
        assert "immutable" in headers["Cache-Control"], path
        assert re.search(r"\.[0-9a-f]{12}\.\w+$", path), path
        plain_headers, plain = open_path(lasting_site, path, accepts="identity")
        assert not plain_headers["Content-Encoding"]
        if headers["Content-Encoding"]:
            assert gzip.decompress(packed) == plain
            sizes[path] = len(packed) / len(plain)
    assert any(path.endswith(".css") for path in sizes)
    assert min(sizes.values()) < 0.4


def test_a_file_is_not_sent_again_to_a_browser_that_has_it(lasting_site: Site) -> None:
    path = list_files_of_login_page(lasting_site)[0]
    headers, _ = open_path(lasting_site, path)
    request = urllib.request.Request(
        f"http://127.0.0.1:{lasting_site.port}{path}", headers={"If-Modified-Since": headers["Last-Modified"]}
    )
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(request, timeout=60)  # noqa: S310
    assert answer.value.code == 304


def test_the_files_of_a_former_version_are_gone_after_a_start(lasting_site: Site) -> None:
    (folder,) = (lasting_site.place / "data" / "static").iterdir()
    assert (folder / "staticfiles.json").is_file()
