"""Amazon Bedrock by its Converse API, for models of all makers.

The base URL is https://bedrock-runtime.REGION.amazonaws.com. The key is a Bedrock API key, or the pair
ACCESS_KEY_ID:SECRET_ACCESS_KEY, with :SESSION_TOKEN if it is temporary. The secret part of a pair is never
sent: it signs each request by Signature Version 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers.base import Provider

REGION = re.compile(r"\bbedrock-runtime(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+)+-\d)\.")
REGIONS = (
    "us-east-1", "us-east-2", "us-west-2", "ca-central-1", "sa-east-1", "eu-central-1", "eu-central-2", "eu-north-1",
    "eu-south-1", "eu-west-1", "eu-west-2", "eu-west-3", "ap-northeast-1", "ap-northeast-2", "ap-south-1",
    "ap-southeast-1", "ap-southeast-2",
)  # fmt: skip
SERVICE = "bedrock"


def sign(url: str, body: bytes, headers: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the headers with the key, or with the signature of these bytes by a pair of keys.

    Raise ValueError if the key has another form.
    """
    parts = key.split(":")
    own = {"Content-Type": headers["Content-Type"]}
    if len(parts) == 1:
        return own | {"Authorization": f"Bearer {key}"}
    if len(parts) > 3 or not all(parts):
        raise ValueError("the key is neither an API key nor ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]")
    # botocore comes with LiteLLM, and takes long to import.
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    region = found[1] if (found := REGION.search(url)) else REGIONS[0]
    request = AWSRequest("POST", url, headers=own, data=body)
    SigV4Auth(Credentials(*parts), SERVICE, region).add_auth(request)
    return dict(request.headers.items())


PROVIDER = Provider(
    name="bedrock",
    label="Amazon Bedrock",
    adapter="bedrock/converse",
    needs_url=True,
    hosts=frozenset(f"bedrock-runtime.{region}.amazonaws.com" for region in REGIONS),
    key_name="BEDROCK_API_KEY",
    native=frozenset({"top_k"}),
    speaks_openai=False,
    needs_output_limit=True,  # The reservation rests on the model's limit; some models have a short one of their own.
    statuses={424: ErrorClass.SERVER_ERROR},  # The model failed.
    models_path="",
    sign=sign,
)
