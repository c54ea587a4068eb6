#!/usr/bin/env python3
"""Test vectors of Cloudburst's handshake, by another implementation of Noise.

    python3 -m venv target/vectors    # systems refuse to have packages installed for all (PEP 668)
    target/vectors/bin/pip install -r lab/vectors/requirements.txt
    target/vectors/bin/python lab/vectors/handshake.py

prints what stands in the block `handshake-vectors` of docs/src/reference/cloudburst-wire.md, where
the tests of cloudburst-wire read it; `--check` compares the two, and exits with 1 if they differ. Nothing
here is taken from the Rust code: handshakes are those of `noiseprotocol`, the cipher is that of
`cryptography`, BLAKE3 that of `blake3`, the check of what is not sealed that of `xxhash`.
"""

import pathlib
import struct
import sys
import warnings

try:
    from blake3 import blake3
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from noise.connection import Keypair, NoiseConnection
    from xxhash import xxh3_64_digest
except ModuleNotFoundError as missing:
    print(
        f"{sys.argv[0]}: the module {missing.name!r} is not installed for {sys.executable};"
        f" this makes an environment that has it:\n\n{__doc__.split(chr(10) * 2)[1]}",
        file=sys.stderr,
    )
    sys.exit(2)

PAGE = pathlib.Path(__file__).parents[2] / "docs/src/reference/cloudburst-wire.md"
FENCE = "```handshake-vectors\n"

VERSION = 3
STOP, PING, PONG, CHALLENGE, CANCEL = 2, 6, 7, 8, 10
DATA, OFFER, ACCEPTANCE, RETRY = 1, 2, 3, 4
DELIVERED, CANCELLED = 0, 3

INITIATOR_SECRET = bytes([0x11]) * 32
RESPONDER_SECRET = bytes([0x22]) * 32
SHARED_SECRET = bytes([0x33]) * 32
INITIATOR_EPHEMERAL = bytes([0x44]) * 32
RESPONDER_EPHEMERAL = bytes([0x55]) * 32
EARLY_SECRET = bytes([0x66]) * 32
INITIATOR_INDEX = 0x0102030405060708
RESPONDER_INDEX = 0x1112131415161718
INITIATOR_CONVERSATION = 0x2122232425262728
RESPONDER_CONVERSATION = 0x3132333435363738
UPTIME_US = 0x5152535455565758
OLDEST_US = 0x6162636465666768
UNIX_US = 1_700_000_000_000_000
TOKEN = bytes(range(40))
SHARED_KEY_ID = 7
NONCE = 0x4142434445464748
MESSAGE = 0x7172737475767778
PATH, SENT_US = 0x0A0B, 0x0C0D0E0F
# Of what is sent without state about whom it goes to.
NO_PATH = 0
HOLD_US = 500


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def header(kind, form, index, sequence, path=PATH):
    return struct.pack(">BBHIQQ", VERSION << 4 | kind, form, path, SENT_US, index, sequence)


def sealed(key, start, sequence, body):
    nonce = struct.pack(">HHQ", PATH, 0, sequence)
    return start + ChaCha20Poly1305(key).encrypt(nonce, body, start)


def retry():
    """What an offer is answered with that needs a token: not sealed, for there are no keys yet."""
    datagram = header(CHALLENGE, RETRY, INITIATOR_INDEX, 0, NO_PATH)
    datagram += struct.pack(">Q", INITIATOR_INDEX) + TOKEN
    return datagram + xxh3_64_digest(datagram)


def varint(number):
    """An integer of variable length (RFC 9000 section 16)."""
    for prefix, length in enumerate((1, 2, 4, 8)):
        if number < 1 << 8 * length - 2:
            return (prefix << 8 * length - 2 | number).to_bytes(length, "big")
    raise ValueError(number)


def report(path, received, highest, delay_us, capable, marked):
    """How a path fares: counts, the delay, and how many came as capable of ECN, and as marked."""
    start = struct.pack(">HIII", path, received, highest, delay_us)
    return start + (b"\x01" + varint(capable) + varint(marked) if capable else b"\x00")


def stop(outcome, needed, spread_us, reports):
    """The body of a Stop: asker, message, outcome, echo, symbols needed, spread, reports."""
    body = struct.pack(">QQB", INITIATOR_CONVERSATION, MESSAGE, outcome)
    body += struct.pack(">HII", PATH, SENT_US, HOLD_US) + struct.pack(">HI", needed, spread_us)
    return body + b"".join(reports)


def after_the_handshake(to_responder, to_initiator):
    """A message's end, and one that its sender gives up, under the keys of an association."""
    delivered = stop(DELIVERED, 3, 1_234, [report(PATH, 7, 6, 0x81828384, 5, 2)])
    cancel = struct.pack(">Q", MESSAGE) + bytes(40)
    return {
        "stop": sealed(to_initiator, header(STOP, DATA, INITIATOR_INDEX, 1), 1, delivered),
        "cancel": sealed(to_responder, header(CANCEL, DATA, RESPONDER_INDEX, 2), 2, cancel),
        "cancelled": sealed(
            to_initiator, header(STOP, DATA, INITIATOR_INDEX, 2), 2, stop(CANCELLED, 0, 0, [])
        ),
    }


def vectors(prefix, pattern, key_id, name, configure, gate_of):
    prologue = (
        b"cldburst"
        + bytes([VERSION, pattern, key_id])
        + struct.pack(">Q", INITIATOR_INDEX)
        + TOKEN
    )
    ends = []
    for is_initiator in (True, False):
        end = NoiseConnection.from_name(name)
        end.set_as_initiator() if is_initiator else end.set_as_responder()
        ephemeral = INITIATOR_EPHEMERAL if is_initiator else RESPONDER_EPHEMERAL
        end.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
        configure(end, is_initiator)
        end.set_prologue(prologue)
        end.start_handshake()
        ends.append(end)
    initiator, responder = ends

    offer = bytes(
        initiator.write_message(
            EARLY_SECRET + struct.pack(">QQQ", UNIX_US, INITIATOR_CONVERSATION, OLDEST_US)
        )
    )
    responder.read_message(offer)
    acceptance = bytes(
        responder.write_message(
            struct.pack(">QQQ", RESPONDER_INDEX, RESPONDER_CONVERSATION, UPTIME_US)
        )
    )
    # The protocol object is dropped when the handshake ends: its keys stay in the cipher states.
    initiator.read_message(acceptance)
    to_responder = initiator.noise_protocol.cipher_state_encrypt.k
    to_initiator = initiator.noise_protocol.cipher_state_decrypt.k

    gate_key = blake3(gate_of, derive_key_context="cloudburst v3 offer gate").digest()
    gated = bytes([pattern, key_id]) + struct.pack(">Q", INITIATOR_INDEX) + TOKEN + offer
    gate = blake3(gated, key=gate_key).digest()[:16]
    early_key = blake3(EARLY_SECRET, derive_key_context="cloudburst v3 early data").digest()

    ping = struct.pack(">Q", NONCE) + bytes(40)
    hello = bytes([pattern, key_id, 0, 0]) + TOKEN + gate + offer
    first = sealed(early_key, header(PING, OFFER, INITIATOR_INDEX, 0) + hello, 0, ping)
    # To the asker's conversation: nonce, echo of the ping, 500 us on hold, its length.
    pong = struct.pack(
        ">QQHIIH", INITIATOR_CONVERSATION, NONCE, PATH, SENT_US, HOLD_US, len(first)
    )
    start = header(PONG, ACCEPTANCE, INITIATOR_INDEX, 0) + acceptance
    answer = sealed(to_initiator, start, 0, pong)
    data = sealed(to_responder, header(PING, DATA, RESPONDER_INDEX, 1), 1, ping)
    more = after_the_handshake(to_responder, to_initiator)
    return {
        f"{prefix}.offer": offer,
        f"{prefix}.acceptance": acceptance,
        f"{prefix}.to_responder": to_responder,
        f"{prefix}.to_initiator": to_initiator,
        f"{prefix}.early_key": early_key,
        f"{prefix}.first": first,
        f"{prefix}.answer": answer,
        f"{prefix}.data": data,
    } | {f"{prefix}.{name}": datagram for name, datagram in more.items()}


def with_key_pairs(end, is_initiator):
    own = INITIATOR_SECRET if is_initiator else RESPONDER_SECRET
    end.set_keypair_from_private_bytes(Keypair.STATIC, own)
    if is_initiator:
        end.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, public(RESPONDER_SECRET))


def with_shared_key(end, _is_initiator):
    end.set_psks(SHARED_SECRET)


def lines():
    all_of_them = {"retry": retry()}
    all_of_them |= vectors(
        "ik", 1, 0, b"Noise_IK_25519_ChaChaPoly_BLAKE2s", with_key_pairs, public(RESPONDER_SECRET)
    )
    all_of_them |= vectors(
        "nnpsk0",
        2,
        SHARED_KEY_ID,
        b"Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        with_shared_key,
        SHARED_SECRET,
    )
    for name, value in all_of_them.items():
        for at in range(0, len(value), 32):
            yield f"{name if at == 0 else '':20}{value[at:at + 32].hex()}"


def main():
    # Fixed ephemeral keys, about which `noiseprotocol` warns, are what vectors are made of.
    warnings.filterwarnings("ignore", module="noise")
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(f"usage: {sys.argv[0]} [--check]")
    made = "".join(f"{line}\n" for line in lines())
    if not sys.argv[1:]:
        print(made, end="")
        return
    _, _, rest = PAGE.read_text().partition(FENCE)
    written, _, _ = rest.partition("```")
    if made != written:
        sys.exit(f"{PAGE}: its vectors are not those that are made here")
    print(f"{len(made.splitlines())} lines, as in {PAGE.name}")


if __name__ == "__main__":
    main()
