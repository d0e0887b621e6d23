"""Behind a TLS proxy, one setting makes cookies and forms go by https alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = (
    "from django.conf import settings as s;"
    "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0, s.CSRF_TRUSTED_ORIGINS)"
)


@pytest.mark.parametrize(
    ("switch", "shown"),
    [("1", "True True True ['https://lab.example.org']"), ("0", "False False False []")],
)
def test_cookies_are_secure_exactly_where_the_site_is_served_by_https(switch, shown, tmp_path):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "evalsite.settings",
        "EVALSITE_HTTPS": switch,
        "EVALSITE_DEBUG": "0",
        "EVALSITE_ALLOWED_HOSTS": "lab.example.org",
        "EVALSITE_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == shown
