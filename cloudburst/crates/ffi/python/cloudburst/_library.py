"""The C interface, as include/cloudburst.h of the crate cloudburst-ffi declares it."""

from __future__ import annotations

import ctypes
import enum
import math
import pathlib
import sys
import threading
import time
from typing import Any, Callable, Iterator, Optional

_FOREVER = 2**32 - 1
# Seconds that the main thread waits at a stretch.
_SLICE = 0.2


class Status(enum.IntEnum):
    """Outcome of a call."""

    OK = 0
    PENDING = 1
    INVALID_ARGUMENT = 2
    INVALID_SETTING = 3
    INVALID_KEY = 4
    INVALID_ADDRESS = 5
    NOT_RESOLVED = 6
    BUFFER_TOO_SMALL = 7
    ADDRESS_IN_USE = 8
    ADDRESS_NOT_LOCAL = 9
    NOT_PERMITTED = 10
    SYSTEM = 11
    NO_PEER = 12
    TOO_LARGE = 13
    FULL = 14
    TIMED_OUT = 15
    UNREACHABLE = 16
    BUDGET_SPENT = 17
    BUSY = 18
    REFUSED = 19
    PEER_CLOSED = 20
    OUTCOME_UNKNOWN = 21
    CIRCUIT_BROKEN = 22
    CANCELLED = 23
    NO_REPLY = 24
    NOT_TO_BE_ANSWERED = 25
    CLOSED = 26
    PANICKED = 27


class Priority(enum.IntEnum):
    """Says which messages go first while not all can."""

    BACKGROUND = -1
    NORMAL = 0
    URGENT = 1


class Error(Exception):
    """Why a call has failed: `status`, and the library's words with values and remedies."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = Status(status) if status in iter(Status) else status

    def __reduce__(self) -> tuple:
        return type(self), (int(self.status), str(self))


class Handle:
    """Something of the library's, freed once nobody refers to it: whoever is in a call does."""

    def __init__(self, free: Callable[[Any], None]) -> None:
        # Kept, as the module may be empty already when the interpreter ends.
        self._free = free
        self._as_parameter_ = ctypes.c_void_p()

    def place(self) -> Any:
        """Returns where a call puts it."""
        return ctypes.byref(self._as_parameter_)

    def free(self) -> None:
        """Frees it before that, where nobody else can be in a call with it."""
        self._free(self._as_parameter_)
        self._as_parameter_.value = None

    def __del__(self) -> None:
        self.free()


class Peer(ctypes.Structure):
    """Somebody whom messages are exchanged with, as one endpoint knows it."""

    _fields_ = [("words", ctypes.c_uint32 * 3)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Peer) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


class Receipt(ctypes.Structure):
    """Says how a message was delivered."""

    _fields_ = [
        ("completion_us", ctypes.c_uint64),
        ("symbols", ctypes.c_uint32),
        ("sent", ctypes.c_uint32),
    ]


class CloseReport(ctypes.Structure):
    """Counts what became of messages that were under way when an endpoint was closed."""

    _fields_ = [
        (f"{outcome}_{unit}", ctypes.c_uint64)
        for outcome in ("delivered", "lost", "unknown")
        for unit in ("messages", "bytes")
    ]


class SendOptions(ctypes.Structure):
    """Options of a message; all zero are the defaults."""

    _fields_ = [
        ("deadline_ms", ctypes.c_uint32),
        ("priority", ctypes.c_int32),
        ("idempotent", ctypes.c_uint32),
    ]

    @classmethod
    def of(cls, deadline: Optional[float], priority: Priority, idempotent: bool) -> SendOptions:
        """Takes a deadline in seconds; one that is over already is as short as can be."""
        after = milliseconds(deadline)
        after = 0 if after == _FOREVER else max(after, 1)
        return cls(after, int(Priority(priority)), int(bool(idempotent)))


def milliseconds(seconds: Optional[float]) -> int:
    """Returns a time as the library takes it; None and infinity are without an end."""
    if seconds is None or seconds == math.inf:
        return _FOREVER
    if not seconds >= 0:
        raise ValueError(f"a time of {seconds} s is none")
    return round(min(seconds * 1000, _FOREVER - 1))


def slices(timeout: Optional[float]) -> Iterator[int]:
    """Yields times to wait, one after the other, that are `timeout` together.

    They are short in the main thread, where Python's handlers of signals run (Ctrl-C), and not while a
    call waits.
    """
    whole = milliseconds(timeout)
    if threading.current_thread() is not threading.main_thread():
        yield whole
        return
    end = math.inf if whole == _FOREVER else time.monotonic() + whole / 1000
    while True:
        left = end - time.monotonic()
        yield math.ceil(min(max(left, 0.0), _SLICE) * 1000)
        if left <= _SLICE:
            return


def encoded(given: str) -> bytes:
    """Returns a text as the library takes it, for which a NUL is the end."""
    if "\0" in given:
        raise ValueError("a text has a NUL character, where it would be cut off")
    return given.encode()


def unsigned(number: int, bits: int, name: str) -> int:
    """Returns a number that fits, which `ctypes` would wrap around otherwise."""
    if not 0 <= number < 2**bits:
        reason = f"`{name}` is {number}, which is not within 0 to {2**bits - 1}"
        raise Error(Status.INVALID_SETTING, reason)
    return number


def text(buffer: ctypes.Array) -> str:
    """Returns what the library has written into a buffer."""
    return buffer.value.decode()


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function that returns a status, and raises what is not success."""
    status = function(*arguments)
    if status != Status.OK:
        raise Error(status, library.cloudburst_last_error().decode())


def has_ended(function: Callable[..., int], *arguments: Any) -> bool:
    """Calls a function that waits, as `call` does; False if nothing has happened in its time."""
    try:
        call(function, *arguments)
    except Error as error:
        if error.status != Status.PENDING:
            raise
        return False
    return True


def _load() -> ctypes.CDLL:
    names = {"win32": "cloudburst_ffi.dll", "darwin": "libcloudburst_ffi.dylib"}
    name = names.get(sys.platform, "libcloudburst_ffi.so")
    loaded = ctypes.CDLL(str(pathlib.Path(__file__).with_name(name)))
    handle, place = ctypes.c_void_p, ctypes.c_void_p
    size, data, u32 = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint32
    status = ctypes.c_int32
    for function, result, *arguments in [
        ("version", ctypes.c_char_p),
        ("last_error", ctypes.c_char_p),
        ("status_text", ctypes.c_char_p, status),
        ("key_pair_generate", status, data, size, data, size),
        ("shared_key_generate", status, ctypes.c_uint8, data, size),
        ("public_key", status, data, data, size),
        ("config_shared_key", status, data, place),
        ("config_key_pair", status, data, place),
        ("config_allow", status, handle, data),
        ("config_set_local", status, handle, data),
        ("config_set_ports", status, handle, data),
        ("config_set_dscp", status, handle, ctypes.c_uint8),
        ("config_set_lifetime", status, handle, u32),
        ("config_set_max_message_bytes", status, handle, size),
        ("config_set_early_requests", status, handle, ctypes.c_bool),
        ("config_free", None, handle),
        ("endpoint_bind", status, handle, place),
        ("endpoint_addresses", size, handle, data, size),
        ("endpoint_connect", status, handle, data, data, place),
        ("endpoint_forget", status, handle, Peer),
        ("endpoint_close", status, handle, u32, place),
        ("endpoint_free", None, handle),
        ("enqueue", status, handle, Peer, data, size, place, place),
        ("sending_wait", status, handle, u32, place),
        ("sending_free", None, handle),
        ("request", status, handle, Peer, data, size, u32, place, place),
        ("receive", status, handle, u32, place),
        ("reply", status, handle, handle, data, size, place),
        ("fail", status, handle, handle, data),
        ("message_bytes", ctypes.c_void_p, handle),
        ("message_length", size, handle),
        ("message_peer", Peer, handle),
        ("message_sender_key", size, handle, data, size),
        ("message_is_request", ctypes.c_bool, handle),
        ("message_is_cancelled", ctypes.c_bool, handle),
        ("message_free", None, handle),
    ]:
        declared = getattr(loaded, f"cloudburst_{function}")
        declared.restype, declared.argtypes = result, arguments
    return loaded


library = _load()
