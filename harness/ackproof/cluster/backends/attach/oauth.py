"""Access tokens for SASL/OAUTHBEARER by the client credentials grant (RFC 6749, 4.4): librdkafka's method `oidc`."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.cluster.wire import WireError

OAUTH: Final = "sasl.oauthbearer."
NEEDED: Final = (f"{OAUTH}token.endpoint.url", f"{OAUTH}client.id", f"{OAUTH}client.secret")
_ASK_S: Final = 10.0
_SHARE: Final = 0.8
"""A token is asked for again after this share of its time."""
_UNKNOWN_S: Final = 60.0
"""How long a token is taken to be good whose endpoint does not say."""


class TokenEndpoint:
    """Where tokens come from. The newest is kept as long as it is good. Safe to use from threads."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        if urllib.parse.urlsplit(settings[NEEDED[0]]).scheme not in ("http", "https"):
            raise BadInput(f"{NEEDED[0]}: expected an address such as https://login.example.org/token")

    def token(self) -> str:
        """A token that is good. Raises `WireError` that says what the endpoint answered."""
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._token, seconds = self._ask()
                self._until = now + _SHARE * seconds
            return self._token

    def _ask(self) -> tuple[str, float]:
        url, user, secret = (self._settings[name] for name in NEEDED)
        asked = {"grant_type": "client_credentials", "scope": self._settings.get(f"{OAUTH}scope", "")}
        who = base64.b64encode(f"{user}:{secret}".encode()).decode()
        request = urllib.request.Request(
            url,
            data=urllib.parse.urlencode({name: value for name, value in asked.items() if value}).encode(),
            headers={"Authorization": f"Basic {who}", "Accept": "application/json"},
        )
        try:
            context = ssl.create_default_context(cafile=self._settings.get("https.ca.location"))
            with urllib.request.urlopen(request, timeout=_ASK_S, context=context) as answer:
                said = json.load(answer)
            return str(said["access_token"]), float(said.get("expires_in", _UNKNOWN_S))
        except urllib.error.HTTPError as error:
            error.close()
            raise WireError(f"the token endpoint refuses: {error.code} {error.reason}") from error
        except OSError as error:
            why = getattr(error, "reason", error)
            raise WireError(f"the token endpoint does not answer: {why}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise WireError("the token endpoint answers without an access_token in JSON") from error
