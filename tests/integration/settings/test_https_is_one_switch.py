"""Behind a TLS proxy, one setting restricts cookies and forms to HTTPS."""

import os
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHOW = (
    "from django.conf import settings as s;"
    "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0, s.CSRF_TRUSTED_ORIGINS)"
)


@pytest.mark.parametrize(
    ("switch", "shown"),
    [("1", "True True True ['https://lab.example.org']"), ("0", "False False False []")],
)
def test_cookies_are_secure_only_if_the_site_uses_https(switch, shown, tmp_path):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "evalsite.settings",
        "EVALSITE_HTTPS": switch,
        "EVALSITE_DEBUG": "0",
        "EVALSITE_ALLOWED_HOSTS": "lab.example.org",
        "EVALSITE_DATA_DIR": str(tmp_path),
    }
    completed = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == shown


PRODUCTION = {
    "EVALSITE_HTTPS": "1",
    "EVALSITE_DEBUG": "0",
    "EVALSITE_ALLOWED_HOSTS": "lab.example.org",
    "EVALSITE_SECRET_KEY": "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=64)),
}


@pytest.mark.slow
def test_djangos_own_check_of_a_deployment_finds_nothing(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    completed = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, env={**environment, **PRODUCTION, "EVALSITE_DATA_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.django_db
def test_behind_a_proxy_http_is_redirected_except_for_health(client, settings):
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    response = client.get("/accounts/login/")
    assert (response.status_code, response["Location"]) == (301, "https://testserver/accounts/login/")
    assert client.get("/accounts/login/", headers={"X-Forwarded-Proto": "https"}).status_code == 200
    assert client.get("/healthz").status_code == 200
