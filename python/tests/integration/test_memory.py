"""Memory of the kinds that alloc can be asked for."""

from __future__ import annotations

import pytest

from mooncake import errors
from mooncake.engine import Engine, alloc


@pytest.mark.parametrize("options", [{"huge": True}, {"numa_node": 0}, {"huge": True, "numa_node": 0}])
def test_memory_of_each_kind_is_zeroed_and_moved(options: dict[str, int]) -> None:
    try:
        memory = alloc(5000, **options)
    except (errors.NoMemory, errors.NotSupported) as reason:
        pytest.skip(str(reason))
    with memory, alloc(5000) as other, Engine() as engine, engine.connect(engine.address) as peer:
        assert bytes(memory.view) == bytes(5000)
        with engine.register(memory), engine.register(other):
            memory.view[:5] = b"hello"
            peer.write(memory, other.address)
            assert bytes(other.view[:5]) == b"hello"


def test_more_huge_pages_than_are_reserved_is_an_error_that_names_the_setting() -> None:
    with pytest.raises((errors.NoMemory, errors.NotSupported), match=r"nr_hugepages|no huge pages"):
        alloc(1 << 45, huge=True)


@pytest.mark.parametrize("node", [63, 1024, 2**32 - 1])
def test_a_node_that_is_not_there_is_refused(node: int) -> None:
    with pytest.raises((errors.InvalidArgument, errors.NotSupported), match="NUMA"):
        alloc(4096, numa_node=node)


@pytest.mark.parametrize("node", [-1, 2**32, 2**64])
def test_a_node_is_a_number_from_0_on(node: int) -> None:
    with pytest.raises(ValueError, match="NUMA node"):
        alloc(4096, numa_node=node)
