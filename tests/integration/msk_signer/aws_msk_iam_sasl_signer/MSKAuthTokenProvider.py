# ruff: noqa: N999 - the name of the module that it stands for
"""Stands for the signer of the optional group msk: signs nothing, and notes each call in a file."""

import base64
import json
import os
import time
from pathlib import Path


def unsecured(subject: str, life_s: float) -> tuple[str, int]:
    """Return a token that a broker's unsecured validator takes, and its end in milliseconds since 1970."""
    now_s = int(time.time())
    claims = {"sub": subject, "iat": now_s, "exp": now_s + life_s}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""]), int((now_s + life_s) * 1000)


def generate_auth_token(region: str) -> tuple[str, int]:
    """Return a token as the signer does."""
    directory = Path(os.environ["TOKENS_DIRECTORY"])
    if (directory / "refused").exists():
        raise ValueError("AWS Credentials can not be empty")
    with (directory / "signed").open("a") as signed:
        signed.write(f"{region}\n")
    return unsecured(os.environ["TOKENS_SUBJECT"], float(os.environ["TOKENS_LIFE_S"]))
