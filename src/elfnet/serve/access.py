"""Who may change the operating point for everybody: whoever has the token."""

import hmac
import os
from pathlib import Path

from elfnet.errors import RequestError, WorkError
from elfnet.serve.refusal import Refusal

VARIABLE = "ELFNET_TOKEN"


def find_token(file: Path | None) -> str | None:
    """From a file, else from the environment; None if there is none."""
    if file is None:
        return os.environ.get(VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from error
    if not token:
        raise RequestError(f"{file} holds no token; write one line into it")
    return token


def require_token(authorization: str | None, token: str | None) -> None:
    """Refuse anybody who does not send `Authorization: Bearer TOKEN`; everybody, if there is no token."""
    if token is None:
        raise Refusal(
            403, f"the operating point cannot be changed here; start the service with {VARIABLE} or --token-file"
        )
    kind, _, given = (authorization or "").partition(" ")
    # Servers read headers as Latin-1; the bytes are those of the token's UTF-8.
    # In constant time: how long a comparison takes must not tell how much of the token was right.
    same = hmac.compare_digest(given.strip(" ").encode("latin-1"), token.encode())
    if kind.lower() != "bearer" or not same:
        raise Refusal(
            401, "the token is missing or wrong; send 'Authorization: Bearer TOKEN'", WWW_Authenticate="Bearer"
        )
