"""Messages that must not wait: erasure-coded, over several UDP paths at once, until the receiver says stop.

Endpoints may be used by any number of threads. Calls that wait let other threads run. Times are in seconds,
and None waits without an end.

Ctrl-C ends `Endpoint.receive` and `Endpoint.send` within a fifth of a second. Python hears of it only after
`Endpoint.request`, `Message.reply`, `Endpoint.connect`, which looks names up, and `Endpoint.close`: state a
time there, or call them in another thread than the main one.
"""

from __future__ import annotations

import ctypes
from typing import Iterable, Optional

from ._library import (
    CloseReport,
    Error,
    Handle,
    Peer,
    Priority,
    Receipt,
    SendOptions,
    Status,
    call,
    encoded,
    has_ended,
    library,
    milliseconds,
    slices,
    text,
    unsigned,
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
_SIZE_BYTES = ctypes.sizeof(ctypes.c_size_t)


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
    call(library.cloudburst_public_key, encoded(secret_key), public, _KEY_BYTES)
    return text(public)


class Message:
    """A message or request that has arrived.

    A request that was not answered is answered that there is no reply, when it is closed, its `with` block
    ends, or nobody refers to it any more: until then its sender waits.
    """

    def __init__(self, endpoint: Endpoint, handle: Handle) -> None:
        # Before the endpoint, as it is to be freed first.
        self._handle: Optional[Handle] = handle
        self._endpoint = endpoint
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

    def _open(self) -> Handle:
        # Whoever is in a call keeps it, so that another thread may close the message meanwhile.
        handle = self._handle
        if handle is None:
            raise ValueError("the message is closed")
        return handle

    @property
    def is_cancelled(self) -> bool:
        """True where this is a request that its sender has given up."""
        return library.cloudburst_message_is_cancelled(self._open())

    def reply(self, data: bytes) -> Receipt:
        """Answers a request, and waits until its sender has the answer.

        `Error` says why it has not: with `Status.CANCELLED`, `PEER_CLOSED` or `TIMED_OUT` this sender has
        given up or is gone, and others are served as before.
        """
        receipt = Receipt()
        endpoint = self._endpoint._handle
        call(library.cloudburst_reply, endpoint, self._open(), data, len(data), ctypes.byref(receipt))
        return receipt

    def fail(self, reason: str) -> None:
        """Answers a request that it is refused, in a few words."""
        call(library.cloudburst_fail, self._endpoint._handle, self._open(), encoded(reason))

    def close(self) -> None:
        """Ends it; `data` and whose it is stay. One that is closed already is no error."""
        self._handle = None

    def __enter__(self) -> Message:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        if (shared_key is None) == (secret_key is None):
            raise ValueError("give either shared_key or secret_key")
        config = Handle(library.cloudburst_config_free)
        if shared_key is not None:
            call(library.cloudburst_config_shared_key, encoded(shared_key), config.place())
        else:
            call(library.cloudburst_config_key_pair, encoded(secret_key), config.place())
        for key in allow:
            call(library.cloudburst_config_allow, config, encoded(key))
        if local is not None:
            call(library.cloudburst_config_set_local, config, encoded(local))
        if ports is not None:
            call(library.cloudburst_config_set_ports, config, encoded(ports))
        if lifetime is not None:
            call(library.cloudburst_config_set_lifetime, config, milliseconds(lifetime))
        if max_message_bytes is not None:
            most = unsigned(max_message_bytes, 8 * _SIZE_BYTES, "max_message_bytes")
            call(library.cloudburst_config_set_max_message_bytes, config, most)
        if dscp is not None:
            call(library.cloudburst_config_set_dscp, config, unsigned(dscp, 8, "dscp"))
        if early_requests is not None:
            call(library.cloudburst_config_set_early_requests, config, early_requests)
        self._handle = Handle(library.cloudburst_endpoint_free)
        call(library.cloudburst_endpoint_bind, config, self._handle.place())

    @property
    def addresses(self) -> str:
        """Where it is bound, with commas between.

        `connect` of another takes it where `local` was given. Without, the endpoint is bound to all addresses
        of the machine, and this says "0.0.0.0" and "[::]" for them, where nobody can send to.
        """
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
        key = None if public_key is None else encoded(public_key)
        call(
            library.cloudburst_endpoint_connect,
            self._handle,
            encoded(remotes),
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
        """Sends a message and waits until the peer has it; `Error` says why it has not.

        Ctrl-C cancels the message. While as much is under way as the quotas allow, the message waits for its
        turn first, and Ctrl-C is heard after that.
        """
        options = SendOptions.of(deadline, priority, idempotent)
        sending = Handle(library.cloudburst_sending_free)
        call(
            library.cloudburst_enqueue,
            self._handle,
            peer,
            data,
            len(data),
            ctypes.byref(options),
            sending.place(),
        )
        receipt = Receipt()
        try:
            for patience in slices(None):
                if has_ended(library.cloudburst_sending_wait, sending, patience, ctypes.byref(receipt)):
                    break
        finally:
            # Cancels one that was interrupted, whose traceback would keep it under way.
            sending.free()
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
        """Sends a request and waits for the reply, for `timeout` in all. Ctrl-C is heard after that only."""
        options = SendOptions.of(None, priority, idempotent)
        reply = Handle(library.cloudburst_message_free)
        call(
            library.cloudburst_request,
            self._handle,
            peer,
            data,
            len(data),
            milliseconds(timeout),
            ctypes.byref(options),
            reply.place(),
        )
        return _content(reply)

    def receive(self, timeout: Optional[float] = None) -> Optional[Message]:
        """Waits for the next message or request; None if none has come in time."""
        for patience in slices(timeout):
            message = Handle(library.cloudburst_message_free)
            if has_ended(library.cloudburst_receive, self._handle, patience, message.place()):
                return Message(self, message)
        return None

    def close(self, within: float = 1.0) -> CloseReport:
        """Waits for what is under way, not longer than `within`, and two minutes at most, and ends; calls
        that wait in other threads raise `Error` with `Status.CLOSED`."""
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


def _content(handle: Handle) -> bytes:
    length = library.cloudburst_message_length(handle)
    return ctypes.string_at(library.cloudburst_message_bytes(handle), length) if length else b""
