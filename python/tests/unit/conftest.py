"""The store of the unit tests."""

from __future__ import annotations

import pytest
from fake_store import Fake

MODULES = ("_calls", "_compat", "_options", "_store")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The library's place is taken by a dict."""
    import importlib

    library = Fake()
    for name in MODULES:
        monkeypatch.setattr(importlib.import_module(f"mooncake.store.{name}"), "lib", library)
    monkeypatch.setattr("mooncake.store._calls._get_at", library.get_at)
    return library
