"""The distribution that this package comes in. Its name is `tweed-train`: `tweed` in the public index is
somebody else's package, so no text of ours may name that to pip."""

from __future__ import annotations

import functools
import json
from importlib import metadata
from urllib.parse import unquote, urlsplit

NAME = "tweed-train"


@functools.cache
def version() -> str | None:
    """The version that is installed; None for a folder on the path that was not installed."""
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return None


def install_extra(extra: str) -> str:
    """The command that adds an extra to what is installed here, from the same wheel or folder.

    Example: `install_extra("ray")` is "pip install '/home/me/tweed_train-0.2.0-cp311-abi3-....whl[ray]'".
    """
    try:
        told = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        told = None
    return install_from(json.loads(told or "{}"), extra)


def install_from(origin: dict[str, object], extra: str) -> str:
    """The command for an `origin` as PEP 610 has it in direct_url.json; an empty one is not known."""
    url = urlsplit(str(origin.get("url", "")))
    if url.scheme != "file":
        return f"pip install 'WHEEL[{extra}]', where WHEEL is the path of tweed's wheel"
    editable = "--editable " if origin.get("dir_info") == {"editable": True} else ""
    return f"pip install {editable}'{unquote(url.path)}[{extra}]'"


def install_version(package: str, version: str) -> str:
    """The command that installs one version of `package`, "tweed" or another one that the index has. Tweed
    comes as a wheel: the command is given in its folder."""
    return (
        f"pip install tweed_train-{version}-*.whl"
        if package == "tweed"
        else f"pip install {package}=={version}"
    )
