"""An operator may allow a host of the public internet on a page, but none of a private network."""

import socket

import pytest

from runs_app.llm.url_allowlist import find_url_problem, read_grantable_host


def resolve_to(*addresses):
    return lambda host, port, type: [(socket.AF_INET, type, 6, "", (address, port)) for address in addresses]


def test_a_public_host_may_be_allowed_with_its_port():
    name, problem = read_grantable_host("https://Models.Example.org:8443/v1", resolve_to("93.184.216.34"))
    assert (name, problem) == ("models.example.org:8443", "")
    assert find_url_problem("https://models.example.org:8443/v1", [name]) is None
    assert find_url_problem("https://models.example.org:9999/v1", [name]) is not None
    assert find_url_problem("https://other.example.org:8443/v1", [name]) is not None


@pytest.mark.parametrize(
    "address",
    ["10.0.0.5", "172.16.3.4", "192.168.1.9", "169.254.169.254", "100.64.0.1", "127.0.0.1", "fd00::1",
     "fe80::1%eth0", "::ffff:10.0.0.5", "224.0.0.1"],
)  # fmt: skip
def test_an_address_of_a_private_network_is_refused_with_the_remedy(address):
    _, problem = read_grantable_host("http://inside.example.org:8000/v1", resolve_to("93.184.216.34", address))
    assert "private network" in problem
    assert "EVALSITE_LLM_ALLOWED_HOSTS" in problem


def test_a_name_without_an_address_is_refused():
    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    assert "Check the spelling" in read_grantable_host("https://modles.example.org/v1", fail)[1]
