"""Who may do what. localkube knows two kinds of users: those it trusts, and those who may only look at discovery. Pure."""

from __future__ import annotations

from raybus_localkube.server import errors
from raybus_localkube.server.messages import Request, User
from raybus_localkube.server.routing import Target

TRUSTED_GROUPS = frozenset({"system:masters", "system:nodes", "system:serviceaccounts"})
OPEN_PATHS = ("/api", "/apis", "/healthz", "/livez", "/readyz", "/version", "/openapi")


def trusted(user: User) -> bool:
    """Roles are stored but not evaluated: service accounts may do everything, so that Ray's autoscaler and submitter can work."""
    return not TRUSTED_GROUPS.isdisjoint(user.groups)


def check(user: User, verb: str, target: Target) -> None:
    """403 in the server's words unless the user is trusted."""
    if trusted(user):
        return
    plural = target.plural + (f"/{target.subresource}" if target.subresource else "")
    namespace = (
        target.namespace if target.namespace is not None else (target.name if target.plural == "namespaces" else "")
    )
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = f'User "{user.name}" cannot {verb} resource "{plural}" in API group "{target.group}" {scope}'
    raise errors.forbidden(target.group, target.plural, target.name, message)


def check_path(request: Request) -> None:
    if trusted(request.user):
        return
    path = request.path.rstrip("/")
    allowed = request.method == "GET" and any(
        path == open_path or path.startswith(f"{open_path}/") for open_path in OPEN_PATHS
    )
    if not allowed:
        verb = {"GET": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, "get"
        )
        message = f'forbidden: User "{request.user.name}" cannot {verb} path "{request.path}"'
        raise errors.ApiError(403, "Forbidden", message, {})
