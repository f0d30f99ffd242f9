"""Messages of RpcInterface: what is packed is parsed again, and anything else is refused without taking memory."""

from __future__ import annotations

import random
import struct

import pytest

from mooncake.engine._rpc_wire import ANSWER, DATA, TENSOR, Message, pack, parse

ID = bytes(range(16))
GOOD = [
    Message(DATA, ID, 0, 0, 3, data=b"abc"),
    Message(DATA, ID, 0, 0, 0),
    Message(DATA, ID, 0, 1 << 40, 1 << 30),
    Message(TENSOR, ID, 0, 4096, 24, "torch.float32", 4, (2, 3)),
    Message(TENSOR, ID, 0, 0, 8, "int64", 8, (), b"12345678"),
    Message(TENSOR, ID, 0, 0, 0, "int64", 8, (5, 0), b""),
    Message(ANSWER, ID, -2007),
    Message(ANSWER, ID),
]


@pytest.mark.parametrize("message", GOOD)
def test_what_is_packed_is_parsed_again(message: Message) -> None:
    assert parse(pack(message)) == message


@pytest.mark.parametrize("message", GOOD)
def test_every_cut_and_every_tail_is_refused(message: Message) -> None:
    packed = pack(message)
    for wrong in [packed[:k] for k in range(len(packed))] + [packed + b"x"]:
        with pytest.raises(ValueError):  # noqa: PT011 - the words differ
            parse(wrong)


def test_what_does_not_fit_together_is_refused() -> None:
    head = struct.Struct("<BBHi16sQQBB")
    huge = 2**64 - 1
    for fields in [
        (2, DATA, 0, 0, ID, 0, 0, 0, 0),  # a version of tomorrow
        (1, 0, 0, 0, ID, 0, 0, 0, 0),
        (1, 9, 0, 0, ID, 0, 0, 0, 0),
        (1, DATA, 0, 0, ID, 0, huge, 0, 0),  # bytes that aren't there
        (1, DATA, 0, 0, ID, huge, 2, 0, 0),  # wraps around
        (1, DATA, 0, 0, ID, 8, 2, 0, 255),
        (1, ANSWER, 0, 1, ID, 0, 0, 0, 0),
        (1, ANSWER, 0, 0, ID, 8, 8, 0, 0),
        (1, TENSOR, 4, 0, ID, 8, 8, 0, 0),  # no dtype
    ]:
        with pytest.raises(ValueError):  # noqa: PT011
            parse(head.pack(*fields))
    tensor = (1, TENSOR, 4, 0, ID, 8, 24, 7, 2)
    for itemsize, length, dtype, shape in [
        (0, 0, b"float32", (2, 3)),
        (4, 25, b"float32", (2, 3)),
        (4, 24, b"os.exec", (2**63, 2**63)),
        (4, 24, b"a b c d", (2, 3)),
        (4, 24, b"\xff" * 7, (2, 3)),
    ]:
        fields = (*tensor[:2], itemsize, *tensor[3:6], length, *tensor[7:])
        with pytest.raises(ValueError):  # noqa: PT011
            parse(head.pack(*fields) + dtype + struct.pack("<2Q", *shape))


def test_noise_is_refused() -> None:
    dice = random.Random(5)
    for _ in range(20_000):
        good = bytearray(pack(dice.choice(GOOD)))
        for _ in range(dice.randint(1, 4)):
            good[dice.randrange(len(good))] = dice.randrange(256)
        try:
            message = parse(bytes(good))
        except ValueError:
            continue
        assert message.address or len(message.data) == message.length or message.kind == ANSWER


def test_a_tensor_without_a_place_is_not_packed() -> None:
    for dtype, shape in (("", ()), ("x" * 65, ()), ("[('a', int)]", (1,)), ("int8", (1,) * 17)):
        with pytest.raises(ValueError, match="can be sent"):
            pack(Message(TENSOR, ID, 0, 0, 1, dtype, 1, shape))
