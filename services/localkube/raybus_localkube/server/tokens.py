"""Tokens: fixed ones of users, and signed ones of service accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from raybus_localkube.server.messages import User
from raybus_localkube.store.records import Record
from raybus_localkube.store.store import Store

Json = dict[str, Any]
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
PREFIX = "system:serviceaccount:"


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


HEADER = encode(orjson.dumps({"alg": "HS256", "typ": "JWT"}))


def service_account(namespace: str, name: str, uid: str = "") -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"{PREFIX}{namespace}:{name}", groups, uid)


class Tokens:
    """`static` maps a token to its user. A service account's token is valid while the account (and what it is bound to) exists."""

    def __init__(self, secret: bytes, static: Mapping[str, User], store: Store) -> None:
        self._secret, self._static, self._store = secret, dict(static), store

    def issue(self, account: Record, audiences: list[str], now: datetime, seconds: int, bound: Json | None) -> str:
        about: Json = {"namespace": account.namespace, "serviceaccount": {"name": account.name, "uid": account.uid}}
        if bound and bound.get("kind") == "Pod":
            about["pod"] = {"name": bound["name"], "uid": bound["uid"]}
        issued = int(now.timestamp())
        claims = {
            "aud": audiences, "exp": issued + seconds, "iat": issued, "nbf": issued, "iss": AUDIENCE,
            "kubernetes.io": about, "sub": f"{PREFIX}{account.namespace}:{account.name}",
        }  # fmt: skip
        signed = f"{HEADER}.{encode(orjson.dumps(claims))}"
        return f"{signed}.{self._sign(signed)}"

    def _sign(self, text: str) -> str:
        return encode(hmac.digest(self._secret, text.encode(), hashlib.sha256))

    def user(self, token: str, now: datetime) -> User | None:
        """Who presents this token; None if it is not valid."""
        static = self._static.get(token)
        if static is not None:
            return static
        claims = self.claims(token, now)
        if claims is None or AUDIENCE not in claims["aud"]:
            return None
        about = claims["kubernetes.io"]
        account = about["serviceaccount"]
        record = self._store.get("serviceaccounts", about["namespace"], account["name"])
        if record is None or record.uid != account["uid"]:
            return None
        if "pod" in about:
            pod = self._store.get("pods", about["namespace"], about["pod"]["name"])
            if pod is None or pod.uid != about["pod"]["uid"]:
                return None
        return service_account(about["namespace"], account["name"], account["uid"])

    def claims(self, token: str, now: datetime) -> Json | None:
        """The claims of a token with our signature that has not expired."""
        signed, _, signature = token.rpartition(".")
        if not signed or not hmac.compare_digest(self._sign(signed), signature):
            return None
        claims: Json = orjson.loads(decode(signed.partition(".")[2]))
        return claims if claims["exp"] > now.timestamp() else None
