"""Messages that must not wait: erasure-coded, over several UDP paths at once, until the receiver says stop.

Endpoints may be used by any number of threads. Calls that wait let other threads run. Times are in seconds,
and None waits without an end.
"""

from __future__ import annotations

import ctypes
from typing import Iterable, Optional

from ._library import (
    CloseReport,
    Error,
    Peer,
    Priority,
    Receipt,
    SendOptions,
    Status,
    call,
    library,
    milliseconds,
    text,
)

__all__ = [
    "CloseReport",
    "Endpoint",
    "Error",
    "Message",
    "Peer",
    "Priority",
    "Receipt",
    "Status",
    "generate_key_pair",
    "generate_shared_key",
    "public_key",
]

__version__ = library.cloudburst_version().decode()

_KEY_BYTES = 83


def generate_key_pair() -> tuple[str, str]:
    """Returns a new secret key, for a file of the endpoint's own, and its public half, for others."""
    secret, public = (ctypes.create_string_buffer(_KEY_BYTES) for _ in range(2))
    call(library.cloudburst_key_pair_generate, secret, _KEY_BYTES, public, _KEY_BYTES)
    return text(secret), text(public)


def generate_shared_key(number: int = 1) -> str:
    """Returns a new key that all ends share, with a number from 1 to 255."""
    if not 1 <= number <= 255:
        raise ValueError(f"the number of a key is {number}; it must be 1 to 255")
    key = ctypes.create_string_buffer(_KEY_BYTES)
    call(library.cloudburst_shared_key_generate, number, key, _KEY_BYTES)
    return text(key)


def public_key(secret_key: str) -> str:
    """Returns the public half of a secret key."""
    public = ctypes.create_string_buffer(_KEY_BYTES)
    call(library.cloudburst_public_key, secret_key.encode(), public, _KEY_BYTES)
    return text(public)


class Message:
    """A message or request that has arrived.

    A request that was not answered is answered that there is no reply, once nobody refers to it.
    """

    def __init__(self, endpoint: Endpoint, handle: ctypes.c_void_p) -> None:
        self._endpoint = endpoint
        self._handle = handle
        self.data: bytes = _content(handle)
        """The message as its sender gave it."""
        self.peer: Peer = library.cloudburst_message_peer(handle)
        """Whoever sent it, to send something back to."""
        self.is_request: bool = library.cloudburst_message_is_request(handle)
        """True where its sender waits for a reply."""
        buffer = ctypes.create_string_buffer(_KEY_BYTES)
        has_key = library.cloudburst_message_sender_key(handle, buffer, _KEY_BYTES) > 0
        self.sender_key: Optional[str] = text(buffer) if has_key else None
        """The sender's public key, where key pairs say who it is."""

    @property
    def is_cancelled(self) -> bool:
        """True where this is a request that its sender has given up."""
        return library.cloudburst_message_is_cancelled(self._handle)

    def reply(self, data: bytes) -> Receipt:
        """Answers a request, and waits until its sender has the answer."""
        receipt = Receipt()
        endpoint = self._endpoint._handle
        call(library.cloudburst_reply, endpoint, self._handle, data, len(data), ctypes.byref(receipt))
        return receipt

    def fail(self, reason: str) -> None:
        """Answers a request that it is refused, in a few words."""
        call(library.cloudburst_fail, self._endpoint._handle, self._handle, reason.encode())

    def __del__(self) -> None:
        # A request that was not answered is answered that there is no reply.
        library.cloudburst_message_free(self._handle)


class Endpoint:
    """An endpoint on UDP sockets, with a thread of its own. It ends with `close`, or a `with` block.

    Give either `shared_key`, which all ends have, or `secret_key`, with the public keys of those who may
    speak to it in `allow`. `local` are addresses with commas between, and `ports` "4433-4436" or "any:16".
    `lifetime` is what messages get at most, in seconds. Requests that come before the first `receive` are
    kept where ports are named, or where `early_requests` says so.
    """

    def __init__(
        self,
        *,
        shared_key: Optional[str] = None,
        secret_key: Optional[str] = None,
        allow: Iterable[str] = (),
        local: Optional[str] = None,
        ports: Optional[str] = None,
        lifetime: Optional[float] = None,
        max_message_bytes: Optional[int] = None,
        dscp: Optional[int] = None,
        early_requests: Optional[bool] = None,
    ) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        if (shared_key is None) == (secret_key is None):
            raise ValueError("give either shared_key or secret_key")
        config = ctypes.c_void_p()
        if shared_key is not None:
            call(library.cloudburst_config_shared_key, shared_key.encode(), ctypes.byref(config))
        else:
            call(library.cloudburst_config_key_pair, secret_key.encode(), ctypes.byref(config))
        try:
            for key in allow:
                call(library.cloudburst_config_allow, config, key.encode())
            if local is not None:
                call(library.cloudburst_config_set_local, config, local.encode())
            if ports is not None:
                call(library.cloudburst_config_set_ports, config, ports.encode())
            if lifetime is not None:
                call(library.cloudburst_config_set_lifetime, config, milliseconds(lifetime))
            if max_message_bytes is not None:
                call(library.cloudburst_config_set_max_message_bytes, config, max_message_bytes)
            if dscp is not None:
                call(library.cloudburst_config_set_dscp, config, dscp)
            if early_requests is not None:
                call(library.cloudburst_config_set_early_requests, config, early_requests)
            endpoint = ctypes.c_void_p()
            call(library.cloudburst_endpoint_bind, config, ctypes.byref(endpoint))
            self._handle = endpoint
        finally:
            library.cloudburst_config_free(config)

    @property
    def addresses(self) -> str:
        """Where it is bound, as `connect` of another takes it, with commas between."""
        size = library.cloudburst_endpoint_addresses(self._handle, None, 0)
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed = library.cloudburst_endpoint_addresses(self._handle, buffer, size)
            if needed <= size:
                return text(buffer)
            # A port was replaced by one with more digits meanwhile.
            size = needed

    def connect(self, remotes: str, public_key: Optional[str] = None) -> Peer:
        """Makes a peer known at these addresses; `public_key` is its own, where key pairs are used."""
        peer = Peer()
        key = None if public_key is None else public_key.encode()
        call(
            library.cloudburst_endpoint_connect,
            self._handle,
            remotes.encode(),
            key,
            ctypes.byref(peer),
        )
        return peer

    def forget(self, peer: Peer) -> None:
        """Forgets a peer: what is under way to it is abandoned."""
        call(library.cloudburst_endpoint_forget, self._handle, peer)

    def send(
        self,
        peer: Peer,
        data: bytes,
        *,
        deadline: Optional[float] = None,
        priority: Priority = Priority.NORMAL,
        idempotent: bool = False,
    ) -> Receipt:
        """Sends a message and waits until the peer has it; `Error` says why it has not."""
        options = SendOptions.of(deadline, priority, idempotent)
        receipt = Receipt()
        call(
            library.cloudburst_send,
            self._handle,
            peer,
            data,
            len(data),
            ctypes.byref(options),
            ctypes.byref(receipt),
        )
        return receipt

    def request(
        self,
        peer: Peer,
        data: bytes,
        timeout: Optional[float],
        *,
        priority: Priority = Priority.NORMAL,
        idempotent: bool = False,
    ) -> bytes:
        """Sends a request and waits for the reply, for `timeout` in all."""
        options = SendOptions.of(None, priority, idempotent)
        reply = ctypes.c_void_p()
        call(
            library.cloudburst_request,
            self._handle,
            peer,
            data,
            len(data),
            milliseconds(timeout),
            ctypes.byref(options),
            ctypes.byref(reply),
        )
        try:
            return _content(reply)
        finally:
            library.cloudburst_message_free(reply)

    def receive(self, timeout: Optional[float] = None) -> Optional[Message]:
        """Waits for the next message or request; None if none has come in time."""
        message = ctypes.c_void_p()
        patience = milliseconds(timeout)
        try:
            call(library.cloudburst_receive, self._handle, patience, ctypes.byref(message))
        except Error as error:
            if error.status == Status.PENDING:
                return None
            raise
        return Message(self, message)

    def close(self, within: float = 1.0) -> CloseReport:
        """Waits for what is under way, not longer than `within`, and ends; calls that wait in other
        threads raise `Error` with `Status.CLOSED`."""
        report = CloseReport()
        call(
            library.cloudburst_endpoint_close,
            self._handle,
            milliseconds(within),
            ctypes.byref(report),
        )
        return report

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Whoever is in a call holds a reference, so that nobody is.
        if self._handle is not None:
            library.cloudburst_endpoint_free(self._handle)


def _content(handle: ctypes.c_void_p) -> bytes:
    length = library.cloudburst_message_length(handle)
    return ctypes.string_at(library.cloudburst_message_bytes(handle), length) if length else b""
