"""Google Vertex AI by its API in OpenAI's form, for Gemini and the models of its Model Garden.

The base URL is https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION/endpoints/openapi. A
model's ID names its maker, as in google/gemini-2.5-flash. The key is the JSON file of a service account, also in
base64, which is exchanged for an access token of an hour, or such a token. The extra `vertex` installs PyJWT for it.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from runs_app.llm.providers.base import Grant, Provider

LOCATIONS = (
    "us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west4", "northamerica-northeast1",
    "southamerica-east1", "europe-central2", "europe-north1", "europe-southwest1", "europe-west1", "europe-west2",
    "europe-west3", "europe-west4", "europe-west6", "europe-west8", "europe-west9", "asia-east1", "asia-northeast1",
    "asia-northeast3", "asia-south1", "asia-southeast1", "australia-southeast1",
)  # fmt: skip
TOKEN_HOST = "oauth2.googleapis.com"  # noqa: S105 - a host
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME_S = 3600


def build_grant(key: str, now_s: float) -> Grant | None:
    """Return the form with an assertion of the service account (RFC 7523), or None if the key is an access token.

    Raise ValueError if the key is no service account, or if PyJWT is not installed.
    """
    account = _read_account(key)
    if account is None:
        return None
    try:
        import jwt
    except ImportError:
        raise ValueError("a service account needs PyJWT: pip install 'evalsite[vertex]'") from None
    issued_s = int(now_s)
    try:
        address, private_key, email = account["token_uri"], account["private_key"], account["client_email"]
        claims = {"iss": email, "scope": SCOPE, "aud": address, "iat": issued_s, "exp": issued_s + LIFETIME_S}
        headers = {"kid": account["private_key_id"]} if "private_key_id" in account else None
        assertion = jwt.encode(claims, private_key, algorithm="RS256", headers=headers)
    except KeyError as missing:
        raise ValueError(f"the service account has no {missing.args[0]}") from None
    except (jwt.PyJWTError, TypeError, ValueError):
        raise ValueError("the private key of the service account cannot be read") from None
    return Grant(address, {"grant_type": JWT_BEARER, "assertion": assertion})


def _read_account(key: str) -> dict[str, Any] | None:
    """Return the service account in a key, or None if it is none."""
    text = key
    if not key.startswith("{"):
        try:
            text = base64.b64decode(key, validate=True).decode()
        except ValueError:
            return None
    try:
        account = json.loads(text)
    except ValueError:
        return None
    return account if isinstance(account, dict) else None


PROVIDER = Provider(
    name="vertex_ai",
    label="Google Vertex AI",
    needs_url=True,
    hosts=frozenset({"aiplatform.googleapis.com", TOKEN_HOST})
    | {f"{location}-aiplatform.googleapis.com" for location in LOCATIONS},
    key_name="VERTEX_SERVICE_ACCOUNT_KEY",
    models_path="",
    build_grant=build_grant,
)
