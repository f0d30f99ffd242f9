"""The public modules have exactly the names they list, and those of the frozen contract with its parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Optional

import pytest

MODULES = ("engine", "store")
CONTRACTS = {name: (Path(__file__).parent / f"{name}.contract").read_text().splitlines()[1:] for name in MODULES}
PUBLIC = ["mooncake", "mooncake.engine", "mooncake.store", "mooncake.errors"]
PUBLIC += [f"mooncake.cli.{name}" for name in ("demo", "main", "replay")]
EXAMPLES = {
    "TransferOpcode": "Read", "ObjectDataType": "TENSOR", "ReplicaStatus": "COMPLETE", "SoftPinAction": "ENABLE",
    "TaskStatus": "SUCCESS", "TaskType": "REPLICA_COPY",
}  # fmt: skip


def parameters(text: str) -> list[inspect.Parameter]:
    """Those of a line of the contract."""
    function = ast.parse(f"def {text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    found: list[inspect.Parameter] = []

    def add(argument: ast.arg, kind: Any, default: Optional[ast.expr] = None) -> None:
        value: Any = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        found.append(inspect.Parameter(argument.arg, kind, default=value))

    missing = [None] * (len(given.args) - len(given.defaults))
    for argument, default in zip(given.args, [*missing, *given.defaults]):
        add(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD, default)
    if given.vararg:
        add(given.vararg, inspect.Parameter.VAR_POSITIONAL)
    for argument, default in zip(given.kwonlyargs, given.kw_defaults):
        add(argument, inspect.Parameter.KEYWORD_ONLY, default)
    if given.kwarg:
        add(given.kwarg, inspect.Parameter.VAR_KEYWORD)
    return found


def public() -> list[tuple[str, str]]:
    """(module, line) of each name in the contracts."""
    return [(module, line) for module in MODULES for line in CONTRACTS[module] if not line.startswith(" ")]


def members() -> list[tuple[str, str, str]]:
    """(module, class, line) of each member in the contracts."""
    found: list[tuple[str, str, str]] = []
    for module in MODULES:
        kind = ""
        for line in CONTRACTS[module]:
            if line.startswith("class "):
                kind = line.split()[1]
            elif line.startswith("  "):
                found.append((module, kind, line.strip()))
    return found


@pytest.mark.parametrize(("module", "line"), public())
def test_the_contract_s_names_are_public(module: str, line: str) -> None:
    found = importlib.import_module(f"mooncake.{module}")
    if line.startswith("class "):
        assert line.split()[1] in found.__all__
        assert inspect.isclass(getattr(found, line.split()[1]))
    else:
        name, value = line.split(" = ")
        assert name in found.__all__
        assert getattr(found, name) == ast.literal_eval(value)


@pytest.mark.parametrize(("module", "kind", "line"), members())
def test_the_contract_s_members_take_the_same_parameters(module: str, kind: str, line: str) -> None:
    from mooncake.store import _later

    found = getattr(importlib.import_module(f"mooncake.{module}"), kind)
    if module == "store" and kind in _later.CLASSES:
        with pytest.raises(NotImplementedError):
            found()
        return
    if line.startswith("."):
        instance = getattr(found, EXAMPLES[kind]) if kind in EXAMPLES else found()
        assert hasattr(instance, line[1:])
        return
    function = inspect.getattr_static(found, line.split("(")[0])
    function = function.__func__ if isinstance(function, staticmethod) else function
    if function.__name__ in " ".join(_later.METHODS.values()).split():
        return  # called in test_compatible_store_calls.py
    taken = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    wanted = parameters(line)
    assert len(taken) == len(wanted)
    for parameter, expected in zip(taken, wanted):
        assert (parameter.kind, parameter.default) == (expected.kind, expected.default)
        if not re.fullmatch(r"arg\d", expected.name):
            assert parameter.name == expected.name


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_lists_its_names_and_has_words_for_each(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        if public == "__version__":
            continue
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public} has no docstring"
        if inspect.isclass(value) and name in ("mooncake.engine", "mooncake.store"):
            for member, item in vars(value).items():
                if inspect.isfunction(item) and not member.startswith("_"):
                    assert item.__doc__, f"{name}.{public}.{member} has no docstring"
