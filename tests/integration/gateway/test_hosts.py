"""Allowed hosts: loopback, providers over https, and hosts that an operator lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.llm.url_allowlist import PROVIDER_HOSTS, find_url_problem

LISTED = ["models.example.org", "gpu.example.org:8443"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "http://localhost/v1",
        "http://LOCALHOST./v1",
        "http://[::1]:11434",
        "http://127.8.9.10/v1",
        "https://api.openai.com/v1",
        "https://openrouter.ai/api/v1",
        "http://models.example.org:9999/v1",
        "https://MODELS.example.org./v1",
        "https://gpu.example.org:8443/v1",
    ],
)
def test_allowed_addresses_are_accepted(url: str) -> None:
    assert find_url_problem(url, LISTED) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models.example.org",
        "//models.example.org/v1",
        "http://",
        "http://[::1",
        "http://127.0.0.1:99999/v1",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://api.openai.com/v1",
        "https://api.openai.com.example.net/v1",
        "https://api.openai.com@evil.example/v1",
        "https://user:secret@api.openai.com/v1",
        "http://token@127.0.0.1/v1",
        "http://gpu.example.org:8444/v1",
        "http://gpu.example.org/v1",
        "http://sub.models.example.org/v1",
        "http://0.0.0.0/v1",
        "http://10.0.0.1/v1",
        "http://2130706433/v1",
        "http://127.1/v1",
        "http://169.254.169.254/latest/meta-data",
    ],
)
def test_forbidden_addresses_are_refused(url: str) -> None:
    problem = find_url_problem(url, LISTED)
    assert problem
    assert "secret" not in problem


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "metadata.google.internal"]
)
def test_a_metadata_service_is_refused_even_if_it_is_listed(host: str) -> None:
    assert find_url_problem(f"http://{host}/v1", [host.strip("[]"), host])


@given(st.text(max_size=80))
def test_any_text_can_be_checked_and_no_unlisted_host_is_accepted(text: str) -> None:
    for url in (text, f"https://{text}", f"http://{text}/v1"):
        if find_url_problem(url, []) is None:
            authority = url.partition("://")[2].lower()
            assert authority.startswith(("localhost", "127.", "[::", "[0", *PROVIDER_HOSTS))
