"""Tries an installed wheel over loopback: `python tests/try_out.py`. Ends with "all of it works"."""

import gc
import socket
import threading
import time

import cloudburst


def refused(status, call, *arguments, **options):
    """The text of the error that a call has to raise."""
    try:
        call(*arguments, **options)
    except cloudburst.Error as error:
        assert error.status == status, (error.status, error)
        return str(error)
    raise AssertionError(f"no error with {status.name}")


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
    seen = []

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
            # What is not answered is answered that there is no reply, once nobody refers to it.
            del request

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with client:
        peer = client.connect(server.addresses, server_public)
        assert client.request(peer, b"hello", 5.0) == b"HELLO"
        assert client.request(peer, b"however long", None) == b"HOWEVER LONG"
        text = refused(cloudburst.Status.NO_REPLY, client.request, peer, b"secret", 5.0)
        assert "nobody may ask for that" in text, text
        # Freed without an answer.
        refused(cloudburst.Status.NO_REPLY, client.request, peer, b"", 5.0)
        receipt = client.send(
            peer, bytes(100_000), deadline=5.0, priority=cloudburst.Priority.URGENT, idempotent=True
        )
        assert receipt.symbols > 60 and receipt.sent >= receipt.symbols, receipt.symbols
        large = bytes(4 * 2**20 + 1)
        refused(cloudburst.Status.TOO_LARGE, client.send, peer, large)
        refused(cloudburst.Status.INVALID_KEY, client.connect, "127.0.0.1:9")
        refused(cloudburst.Status.INVALID_ADDRESS, client.connect, "nowhere", server_public)
    refused(cloudburst.Status.CLOSED, client.send, peer, b"too late")
    # Closing has the thread's call return.
    assert server.close().lost_messages == 0
    thread.join(10)
    assert not thread.is_alive()
    assert seen[0] == (client_public, True) and seen[-1] == (client_public, False), seen
    assert server.addresses


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
        assert 0.2 <= time.monotonic() - began < 5
        assert one.receive(timeout=0.01) is None
        other = cloudburst.Endpoint(shared_key=key)
        refused(cloudburst.Status.NO_PEER, other.send, peer, b"")
        one.forget(peer)
    for arguments in ({}, {"shared_key": key, "secret_key": key}):
        try:
            cloudburst.Endpoint(**arguments)
        except ValueError:
            continue
        raise AssertionError(f"no error with {arguments}")
    refused(cloudburst.Status.INVALID_KEY, cloudburst.Endpoint, shared_key="no key")
    refused(cloudburst.Status.INVALID_SETTING, cloudburst.Endpoint, shared_key=key, lifetime=3600)


with_key_pairs()
with_a_shared_key()
gc.collect()
print(f"cloudburst {cloudburst.__version__}: all of it works")
