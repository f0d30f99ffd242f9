"""transfer_ctypes.py - moves a buffer into another process, with nothing but the shared library.

python transfer_ctypes.py serve                    lends a buffer, prints ADDRESS REMOTE, and waits
python transfer_ctypes.py write ADDRESS REMOTE     in another terminal: fills it

The library is looked for as every shared library is; after `make build` without installing it for good, set
LD_LIBRARY_PATH=build/venv/lib.

What any language with a foreign function interface does: open libmooncake.so.1, check the interface version, declare
the functions that are used, and turn negative statuses into errors. From Python, prefer the package `mooncake`.
"""

import ctypes
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

SIZE = 1 << 20
SECOND = 10**9
REMOTE_WRITE = 2  # MC_REMOTE_WRITE
PENDING = -2006  # MC_ERR_PENDING

lib = ctypes.CDLL("libmooncake.so.1")
lib.mc_api_version.restype = c_uint32
if lib.mc_api_version() >> 16 != 1:
    sys.exit(f"this program is for interface 1, not {lib.mc_api_version() >> 16}")


class Error(ctypes.Structure):
    _fields_ = (("size", c_uint32), ("code", c_int32), ("errno", c_int32), ("message", c_char * 244))


class Notification(ctypes.Structure):
    # c_char_p would stop at a NUL; these bytes come with their lengths.
    _fields_ = tuple((name, c_void_p) for name in ("sender", "name", "message")) + tuple(
        (f"{name}_length", c_size_t) for name in ("sender", "name", "message")
    )

    def get(self, name: str) -> bytes:
        return ctypes.string_at(getattr(self, name), getattr(self, f"{name}_length"))


error = Error(size=ctypes.sizeof(Error))
E = POINTER(Error)


def declare(name: str, *arguments: object, result: object = c_int32):
    """A function of the library that raises when it returns a negative status, but for MC_ERR_PENDING."""
    function = getattr(lib, name)
    function.argtypes, function.restype = arguments, result

    def call(*values: object) -> int:
        status = function(*values)
        if status < 0 and status != PENDING:
            text = lib.mc_status_name(status).decode()
            sys.exit(f"{name}: {text}: {error.message.decode() if error.code == status else ''}")
        return status

    return call


lib.mc_status_name.restype = c_char_p
engine_open = declare("mc_engine_open", c_void_p, POINTER(c_void_p), E)
engine_close = declare("mc_engine_close", c_void_p)
engine_address = declare("mc_engine_address", c_void_p, c_char_p, c_size_t, result=c_int64)
engine_register = declare("mc_engine_register", c_void_p, c_void_p, c_uint64, c_char_p, c_uint32, E)
engine_unregister = declare("mc_engine_unregister", c_void_p, c_void_p, E)
engine_receive = declare("mc_engine_receive", c_void_p, c_uint64, POINTER(POINTER(Notification)))
memory_alloc = declare("mc_memory_alloc", c_uint64, c_void_p, POINTER(c_uint64), POINTER(c_void_p), E)
memory_free = declare("mc_memory_free", c_uint64)
peer_open = declare("mc_peer_open", c_void_p, c_char_p, POINTER(c_uint64), E)
peer_close = declare("mc_peer_close", c_uint64)
peer_write = declare("mc_peer_write", c_uint64, c_void_p, c_uint64, c_uint64, c_uint64, E)
peer_notify = declare("mc_peer_notify", c_uint64, c_char_p, c_size_t, c_char_p, c_size_t, c_uint64, E)
lib.mc_notification_free.argtypes, lib.mc_notification_free.restype = (POINTER(Notification),), None


def serve(engine: c_void_p, buffer: c_void_p) -> None:
    address = ctypes.create_string_buffer(300)
    engine_address(engine, address, len(address))
    print(address.value.decode(), hex(buffer.value), flush=True)
    note = POINTER(Notification)()
    # The write needs nothing from this process. Short waits, because Python hears Ctrl-C only between calls.
    while engine_receive(engine, SECOND // 10, byref(note)) == PENDING:
        pass
    name, length = note.contents.get("name").decode(), note.contents.get("message").decode()
    print(f"{name}: {length} bytes: {ctypes.string_at(buffer.value).decode()}")
    lib.mc_notification_free(note)


def write(engine: c_void_p, buffer: c_void_p, address: str, remote: int) -> None:
    peer, length = c_uint64(), str(SIZE).encode()
    text = b"hello from ctypes"
    ctypes.memmove(buffer, text, len(text))
    peer_open(engine, address.encode(), byref(peer), byref(error))
    peer_write(peer, buffer, remote, SIZE, 0, byref(error))  # 0: the default deadline
    peer_notify(peer, b"written", 7, length, len(length), 5 * SECOND, byref(error))
    peer_close(peer)


def main() -> None:
    serving = sys.argv[1:2] == ["serve"] and len(sys.argv) == 2
    if not serving and not (sys.argv[1:2] == ["write"] and len(sys.argv) == 4):
        sys.exit(__doc__)
    engine, memory, buffer = c_void_p(), c_uint64(), c_void_p()
    engine_open(None, byref(engine), byref(error))
    memory_alloc(SIZE, None, byref(memory), byref(buffer), byref(error))
    engine_register(engine, buffer, SIZE, None, REMOTE_WRITE if serving else 0, byref(error))
    if serving:
        serve(engine, buffer)
    else:
        write(engine, buffer, sys.argv[2], int(sys.argv[3], 0))
    engine_unregister(engine, buffer, byref(error))
    engine_close(engine)
    memory_free(memory)


main()
