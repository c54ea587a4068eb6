//! What the crate offers by name.

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../../src/lib.rs");

/// All that users can name at the root. What is added or taken away here is added to, or taken away
/// from, what every user sees: packets and the state machine are not among it.
const ROOT: &[&str] = &[
    "BindError",
    "BusyAnswers",
    "CloseReport",
    "Closed",
    "ClosedMessages",
    "CompletionExemplar",
    "CompletionHistogram",
    "ConfigError",
    "CongestionControl",
    "ConnectError",
    "ConnectRefused",
    "EcnState",
    "Endpoint",
    "EndpointConfig",
    "EndpointConfigError",
    "EndpointEvent",
    "EndpointStatistics",
    "Error",
    "Events",
    "Failure",
    "FailureReason",
    "ForeignPeer",
    "FourTuple",
    "GoneReason",
    "GroupOutcome",
    "GroupSending",
    "Health",
    "IDENTITY_BYTES",
    "Identity",
    "IdentityError",
    "IntoReply",
    "Key",
    "KeyError",
    "KeyKind",
    "KeyMismatch",
    "Keyring",
    "KeyringError",
    "MAX_LIFETIME",
    "PathChoice",
    "PathReport",
    "PeerError",
    "PeerId",
    "Ports",
    "PortsError",
    "Priority",
    "PublicKey",
    "Quotas",
    "Reason",
    "Receipt",
    "Received",
    "Refusals",
    "Remotes",
    "RemotesError",
    "ReplyError",
    "RequestError",
    "Reservation",
    "SECRET_BYTES",
    "Schedule",
    "SecretKey",
    "Security",
    "SendError",
    "SendOptions",
    "SendRefused",
    "Sending",
    "SocketId",
    "SocketStatistics",
    "StartError",
    "TransportStatistics",
    "TrySendError",
    "Undelivered",
    "blocking",
    "code",
    "memory",
    "runtime",
];

#[test]
fn the_root_has_these_names_and_no_others() {
    let mut names = BTreeSet::new();
    for part in SOURCE.split("\npub ").skip(1) {
        let (item, _) = part.split_once(';').expect("items end");
        match item.split_once(' ') {
            Some(("mod", name)) => names.extend([name.trim()]),
            Some(("use", tree)) => names.extend(leaves(tree)),
            _ => panic!("`pub {item}` is neither a module nor from one"),
        }
    }
    assert_eq!(names, ROOT.iter().copied().collect());
}

/// Names that a tree of `use` brings in, under the name that they then have.
fn leaves(tree: &str) -> impl Iterator<Item = &str> {
    let parts = tree.split(['{', '}', ',']).map(str::trim);
    let names = parts.filter(|it| !it.is_empty() && !it.ends_with("::"));
    names.map(|name| {
        let name = name.rsplit_once(" as ").map_or(name, |(_, name)| name);
        name.rsplit_once("::").map_or(name, |(_, name)| name)
    })
}
