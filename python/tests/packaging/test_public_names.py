"""The public modules have exactly the names they list, and those of the frozen contract with its parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

CONTRACT = (Path(__file__).parent / "engine.contract").read_text().splitlines()[1:]
PUBLIC = ["mooncake", "mooncake.engine", "mooncake.errors", "mooncake.cli.demo"]


def parameters(text: str) -> list[tuple[str, Any]]:
    """(name, default or inspect.Parameter.empty) of a line of the contract."""
    function = ast.parse(f"def {text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args]
    defaults = [ast.literal_eval(value) for value in function.args.defaults]
    return list(zip(names, [inspect.Parameter.empty] * (len(names) - len(defaults)) + defaults))


def members() -> list[tuple[str, str]]:
    """(class, line) of each member in the contract."""
    found: list[tuple[str, str]] = []
    kind = ""
    for line in CONTRACT:
        if line.startswith("class "):
            kind = line.split()[1]
        elif line.startswith("  "):
            found.append((kind, line.strip()))
    return found


@pytest.mark.parametrize("line", [line for line in CONTRACT if not line.startswith(" ")])
def test_the_contract_s_names_are_public(line: str) -> None:
    engine = importlib.import_module("mooncake.engine")
    if line.startswith("class "):
        assert line.split()[1] in engine.__all__
        assert inspect.isclass(getattr(engine, line.split()[1]))
    else:
        name, value = line.split(" = ")
        assert name in engine.__all__
        assert getattr(engine, name) == ast.literal_eval(value)


@pytest.mark.parametrize(("kind", "line"), members())
def test_the_contract_s_members_take_the_same_parameters(kind: str, line: str) -> None:
    found = getattr(importlib.import_module("mooncake.engine"), kind)
    if line.startswith("."):
        instance = found.Read if kind == "TransferOpcode" else found()
        assert hasattr(instance, line[1:])
        return
    function = inspect.getattr_static(found, line.split("(")[0])
    function = function.__func__ if isinstance(function, staticmethod) else function
    taken = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    wanted = parameters(line)
    assert len(taken) == len(wanted)
    for parameter, (name, default) in zip(taken, wanted):
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert parameter.default == default
        if not re.fullmatch(r"arg\d", name):
            assert parameter.name == name


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
        if inspect.isclass(value) and name == "mooncake.engine":
            for member, item in vars(value).items():
                if inspect.isfunction(item) and not member.startswith("_"):
                    assert item.__doc__, f"{name}.{public}.{member} has no docstring"
