"""A process with a compatible TransferEngine, which does what its standard input says: test_restarts.py speaks to it.

    engine_actor.py LISTEN PROTOCOL ADDRESS SIZE

maps SIZE bytes of its own at ADDRESS, registers them, and says where it listens. Then each line is a call with its
arguments, answered by its result: fill BYTE, get OFFSET, map ADDRESS SIZE (registers that, too), read|write PEER REMOTE
LENGTH (between the beginning of its memory and the peer's).
"""

from __future__ import annotations

import ctypes
import sys

from mooncake.engine import TransferEngine

PROT, FLAGS = 3, 0x100022  # readable and writable; private, anonymous, exactly there
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def main(listen: str, protocol: str, address: int, size: int) -> None:
    engine = TransferEngine()
    assert engine.initialize(listen, "P2PHANDSHAKE", protocol, "") == 0

    def place(where: int, length: int) -> int:
        assert libc.mmap(where, length, PROT, FLAGS, -1, 0) == where
        return engine.register_memory(where, length)

    assert place(address, size) == 0
    host = listen.rsplit(":", 1)[0]
    print(f"{host}:{engine.get_rpc_port()}", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        result: object = 0
        if verb == "fill":
            ctypes.memset(address, int(words[0]), size)
        elif verb == "get":
            result = ctypes.string_at(address + int(words[0]), 1)[0]
        elif verb == "map":
            result = place(int(words[0]), int(words[1]))
        elif verb == "read":
            result = engine.transfer_sync_read(words[0], address, int(words[1]), int(words[2]))
        else:
            result = engine.transfer_sync_write(words[0], address, int(words[1]), int(words[2]))
        print(result, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
