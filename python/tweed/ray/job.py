"""What the processes of a Ray job leave for each other, in Ray's own key-value store.

The cluster's head keeps it, whoever has left it. Who may read it may submit tasks to the cluster anyway.
"""

from __future__ import annotations

import secrets

import ray
from ray.experimental import internal_kv

from tweed.errors import Aborted

_NAMESPACE = "tweed"


def leave(name: str, value: str | bytes = "", *, overwrite: bool = True) -> None:
    """Something has this name in this job."""
    internal_kv._internal_kv_put(_key(name), value, overwrite, namespace=_NAMESPACE)


def find(name: str) -> bytes | None:
    """What has this name."""
    found: bytes | None = internal_kv._internal_kv_get(_key(name), namespace=_NAMESPACE)
    return found


def names(folder: str) -> list[str]:
    """The names that begin so, without that."""
    keys: list[bytes] = internal_kv._internal_kv_list(_key(folder), namespace=_NAMESPACE)
    return [key.decode().removeprefix(_key(folder)) for key in keys]


def remove(name: str, *, folder: bool = False) -> None:
    """What has this name is gone; `folder`: all whose names begin so."""
    internal_kv._internal_kv_del(_key(name), del_by_prefix=folder, namespace=_NAMESPACE)


def secret() -> str:
    """What admits to what the processes of this job share: the first of them draws it.

    Raises: Aborted if Ray does not keep it.
    """
    leave("job/secret", secrets.token_hex(32), overwrite=False)
    if (found := find("job/secret")) is None:
        raise Aborted("Ray does not keep the secret of this job: does the cluster's head still run?")
    return found.decode()


def _key(name: str) -> str:
    return f"{ray.get_runtime_context().get_job_id()}/{name}"
