"""mooncake: a transfer engine and a store for the KV cache of language models.

`import mooncake` loads nothing: each capability is a module of its own (`mooncake.engine`, `mooncake.store`,
`mooncake.errors`), and the native library is loaded by the first one that needs it. `mooncake.connect` is
`mooncake.store.connect`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .store import connect

__all__ = ["__version__", "connect"]

__version__: str


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        from importlib.metadata import version

        value = version("mooncake")
    elif name == "connect":
        from .store import connect as value
    else:
        raise AttributeError(f"module 'mooncake' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
