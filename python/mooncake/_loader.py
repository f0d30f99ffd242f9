"""Finds the native library, loads it, and checks that it speaks the interface that this package was written for.

Order: the environment variable MOONCAKE_LIBRARY (an absolute path; nothing else is tried), the package of native
binaries `mooncake_native` if it is installed, `<sys.prefix>/lib`, the loader's own search for the soname, and
`ctypes.util.find_library`. The first that loads is the one: a second copy under the same soname could not be loaded
beside it. Everything that goes wrong ends in one ImportError that lists what was tried and why it failed.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

__all__ = ["NEEDED", "SONAME", "Version", "load"]

SONAME = "libmooncake.so.1"
VARIABLE = "MOONCAKE_LIBRARY"


class Version(NamedTuple):
    """A version of the C interface: equal majors are compatible, minors only add."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


NEEDED = Version(1, 0)


def _find_wheel() -> str:
    """The path in the data wheel; ImportError says why there is none."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("mooncake_native") is None:
        raise ImportError("not installed")
    path: str = import_module("mooncake_native").library_path()
    return path


def _find_prefix() -> str:
    path = os.path.join(sys.prefix, "lib", SONAME)
    if not os.path.exists(path):
        raise ImportError("no such file")
    return path


def _find_system() -> str:
    from ctypes.util import find_library

    path = find_library("mooncake")
    if path is None:
        raise ImportError("not found")
    return path


def _check(ffi: Any, lib: Any, where: str, path: str) -> Any:
    """The library, if its interface fits; else the ImportError that says what was needed and found."""
    import mooncake

    try:
        found_number: int = lib.mc_api_version()
    except (AttributeError, ffi.error):
        words = f"mooncake: {path} ({where}) is not libmooncake: it has no mc_api_version"
        raise ImportError(words, path=path) from None
    found = Version(found_number >> 16, found_number & 0xFFFF)
    if found.major != NEEDED.major or found.minor < NEEDED.minor:
        try:
            package = f"mooncake {mooncake.__version__}"
        except ImportError:
            package = "this mooncake package"
        raise ImportError(
            f"mooncake: {package} needs interface {NEEDED.major}, at least {NEEDED}, of the native library, and found "
            f"interface {found} in {path} ({where}). Install a matching pair, or name another library in {VARIABLE}.",
            path=path,
        )
    return lib


def load(ffi: Any) -> Any:
    """The loaded library. ImportError if none can be loaded, or the one found does not fit."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        if not os.path.isabs(named):
            raise ImportError(f"mooncake: {VARIABLE} must be an absolute path, not {named!r}")
        try:
            return _check(ffi, ffi.dlopen(named), VARIABLE, named)
        except OSError as error:
            words = f"mooncake: {VARIABLE} names a library that can't be loaded: {error}"
            raise ImportError(words, path=named) from None

    tried: list[str] = []
    places = (
        ("package mooncake_native", _find_wheel),
        (f"{sys.prefix}/lib", _find_prefix),
        ("soname", lambda: SONAME),
        ("ctypes.util.find_library", _find_system),
    )
    for where, find in places:
        try:
            path = find()
            lib = ffi.dlopen(path)
        except (ImportError, OSError, AttributeError) as error:
            tried.append(f"  {where}: {error}")
            continue
        return _check(ffi, lib, where, path)
    raise ImportError(
        f"mooncake: the native library {SONAME} was not found. Tried, in this order:\n"
        f"  {VARIABLE}: not set\n" + "\n".join(tried) + "\n"
        f"Install libmooncake, or set {VARIABLE} to the absolute path of the library."
    )
