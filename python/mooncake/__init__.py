"""mooncake: a transfer engine for the KV cache of language models.

`import mooncake` loads nothing: each capability is a module of its own (`mooncake.engine`, `mooncake.errors`), and the
native library is loaded by the first one that needs it.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'mooncake' has no attribute {name!r}")
    from importlib.metadata import version

    value = version("mooncake")
    globals()["__version__"] = value
    return value
