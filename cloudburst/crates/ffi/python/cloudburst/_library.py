"""The C interface, as include/cloudburst.h of the crate cloudburst-ffi declares it."""

from __future__ import annotations

import ctypes
import enum
import pathlib
import sys
from typing import Any, Callable, Optional

_FOREVER = 2**32 - 1


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
        after = 0 if deadline is None else max(milliseconds(deadline), 1)
        return cls(after, int(priority), int(idempotent))


def milliseconds(seconds: Optional[float]) -> int:
    """Returns a time as the library takes it; None is without an end."""
    if seconds is None:
        return _FOREVER
    if not seconds >= 0:
        raise ValueError(f"a time of {seconds} s is none")
    return min(round(seconds * 1000), _FOREVER - 1)


def text(buffer: ctypes.Array) -> str:
    """Returns what the library has written into a buffer."""
    return buffer.value.decode()


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function that returns a status, and raises what is not success."""
    status = function(*arguments)
    if status != Status.OK:
        raise Error(status, library.cloudburst_last_error().decode())


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
        ("send", status, handle, Peer, data, size, place, place),
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
