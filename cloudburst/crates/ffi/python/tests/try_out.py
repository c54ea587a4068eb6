"""Tries an installed wheel over loopback: `python tests/try_out.py`. Ends with "all of it works"."""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import socket
import threading
import time

import cloudburst

# Whatever hangs ends, and is told where.
faulthandler.dump_traceback_later(180, exit=True)

# Seconds that no call here takes on a machine that stands still for some of them.
PATIENCE = 30.0


def refused(status, call, *arguments, **options):
    """The text of the error that a call has to raise."""
    try:
        call(*arguments, **options)
    except cloudburst.Error as error:
        assert error.status == status, (error.status, error)
        return str(error)
    raise AssertionError(f"no error with {status.name}")


@contextlib.contextmanager
def with_ctrl_c():
    """Has Ctrl-C pressed while the block waits, which has to end by it and soon."""
    # Whoever starts a program in the background may have it ignore that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pressing = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    pressing.start()
    began = time.monotonic()
    try:
        yield
    except KeyboardInterrupt:
        assert time.monotonic() - began < PATIENCE
    else:
        raise AssertionError("Ctrl-C did nothing")
    finally:
        pressing.join()


@contextlib.contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def with_key_pairs():
    (client_secret, client_public), (server_secret, server_public) = (
        cloudburst.generate_key_pair() for _ in range(2)
    )
    assert cloudburst.public_key(client_secret) == client_public
    here = {"local": "127.0.0.1", "ports": "any:2"}
    server = cloudburst.Endpoint(
        secret_key=server_secret, allow=[client_public], early_requests=True, **here
    )
    client = cloudburst.Endpoint(secret_key=client_secret, **here)
    seen, kept = [], []

    def serve():
        while True:
            try:
                request = server.receive()
            except cloudburst.Error as error:
                assert error.status == cloudburst.Status.CLOSED
                return
            seen.append((request.sender_key, request.is_request))
            if request.data == b"secret":
                request.fail("nobody may ask for that")
            elif request.is_request and request.data:
                request.reply(request.data.upper())
            # What is not answered is answered that there is no reply, once it is closed. It is kept.
            request.close()
            request.close()
            kept.append(request)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with client:
        peer = client.connect(server.addresses, server_public)
        assert client.request(peer, b"hello", PATIENCE) == b"HELLO"
        assert client.request(peer, b"however long", None) == b"HOWEVER LONG"
        text = refused(cloudburst.Status.NO_REPLY, client.request, peer, b"secret", PATIENCE)
        assert "nobody may ask for that" in text, text
        # Closed without an answer.
        refused(cloudburst.Status.NO_REPLY, client.request, peer, b"", PATIENCE)
        receipt = client.send(
            peer, bytes(100_000), deadline=PATIENCE, priority=cloudburst.Priority.URGENT, idempotent=True
        )
        assert receipt.symbols > 60 and receipt.sent >= receipt.symbols, receipt.symbols
        large = bytes(4 * 2**20 + 1)
        refused(cloudburst.Status.TOO_LARGE, client.send, peer, large)
        refused(cloudburst.Status.INVALID_KEY, client.connect, "127.0.0.1:9")
        refused(cloudburst.Status.INVALID_ADDRESS, client.connect, "nowhere", server_public)
    refused(cloudburst.Status.CLOSED, client.send, peer, b"too late")
    # Closing has the thread's call return.
    assert server.close().lost_messages == 0
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen[0] == (client_public, True) and seen[-1] == (client_public, False), seen
    assert server.addresses
    assert kept[0].data == b"hello"
    with raises(ValueError):
        kept[0].reply(b"too late")


def with_a_shared_key():
    key = cloudburst.generate_shared_key(7)
    with cloudburst.Endpoint(shared_key=key, local="127.0.0.1", ports="any:1") as one, socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM
    ) as silent:
        silent.bind(("127.0.0.1", 0))
        peer = one.connect("127.0.0.1:{}".format(silent.getsockname()[1]))
        assert peer == peer and hash(peer) == hash(peer)
        began = time.monotonic()
        refused(cloudburst.Status.TIMED_OUT, one.send, peer, b"anybody?", deadline=0.2)
        # Its lifetime would be 10 s.
        assert 0.2 <= time.monotonic() - began < 9
        assert one.receive(timeout=0.01) is None
        began = time.monotonic()
        assert one.receive(timeout=0.5) is None
        assert 0.5 <= time.monotonic() - began < PATIENCE
        one.forget(one.connect("127.0.0.1:9"))
        for timeout in (None, float("inf"), 1e308):
            with with_ctrl_c():
                one.receive(timeout)
        with with_ctrl_c():
            try:
                one.send(peer, b"anybody?", deadline=20.0)
            finally:
                # Nothing of it is under way, even while the exception is: that would be waited for.
                one.close(within=10.0)
        other = cloudburst.Endpoint(shared_key=key)
        refused(cloudburst.Status.NO_PEER, other.send, peer, b"")
    for arguments in ({}, {"shared_key": key, "secret_key": key}):
        with raises(ValueError):
            cloudburst.Endpoint(**arguments)
    refused(cloudburst.Status.INVALID_KEY, cloudburst.Endpoint, shared_key="no key")
    refused(cloudburst.Status.INVALID_SETTING, cloudburst.Endpoint, shared_key=key, lifetime=3600)
    # Neither wrapped around nor cut off.
    for setting in ({"dscp": 256}, {"dscp": -1}, {"max_message_bytes": 2**64 + 1000}):
        refused(cloudburst.Status.INVALID_SETTING, cloudburst.Endpoint, shared_key=key, **setting)
    for setting in ({"shared_key": key + "\0"}, {"shared_key": key, "local": "127.0.0.1\0,nonsense"}):
        with raises(ValueError):
            cloudburst.Endpoint(**setting)
    with raises(ValueError):
        other.send(peer, b"", priority=2**32)


def errors_can_be_handed_to_other_processes():
    error = cloudburst.Error(cloudburst.Status.FULL, "no room")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.status, str(again)) == (cloudburst.Error, error.status, "no room")


with_key_pairs()
with_a_shared_key()
errors_can_be_handed_to_other_processes()
gc.collect()
print(f"cloudburst {cloudburst.__version__}: all of it works")
