//! What a leaf and a spine of a fabric do with pure ACKs, and with all else.

use super::{ACK, FAMILIES, Path, segment};
use crate::fabric_router::{FABRIC_DSCP, FabricRouter, ttl_at};
use crate::packet::{Ip, Packet};

/// What a path begins with, its program, whether its packet is one with data or an ACK, and of that TTL and
/// DSCP; then what is done.
type Row = (
    &'static str,
    &'static str,
    Option<(u8, u8)>,
    &'static [&'static str],
);

/// Of a spine whose port is at a third of the backlog that is agreed on.
const REPORTED: u8 = 11 << 3 | 5;

const ROWS: [Row; 8] = [
    (
        "fabric_leaf_writes",
        "leaf_egress",
        Some((63, 0)),
        &["next", "written", "ttl 6", "dscp 41"],
    ),
    (
        "fabric_spine_reports",
        "spine_ingress",
        Some((6, FABRIC_DSCP)),
        &["next", "reported", "ttl 14", "dscp 41"],
    ),
    (
        "fabric_leaf_restores",
        "leaf_ingress",
        Some((REPORTED, FABRIC_DSCP)),
        &["next", "read", "ttl 62", "dscp 0"],
    ),
    (
        "fabric_leaf_passes_ack",
        "leaf_ingress",
        Some((62, 0)),
        &["next", "not_written"],
    ),
    (
        "fabric_leaf_passes_data_out",
        "leaf_egress",
        None,
        &["next", "not_pure_ack"],
    ),
    (
        "fabric_leaf_passes_data_in",
        "leaf_ingress",
        None,
        &["next", "not_pure_ack"],
    ),
    (
        "fabric_spine_passes_data_in",
        "spine_ingress",
        None,
        &["next", "not_pure_ack"],
    ),
    (
        "fabric_spine_models_data_out",
        "spine_egress",
        None,
        &["next"],
    ),
];

pub(super) fn paths() -> Vec<Path> {
    let of_row = |(name, program, ack, does): Row| {
        FAMILIES.map(|(family, full)| {
            let frame = match ack {
                Some((ttl, dscp)) => pure_ack(family, ttl, dscp),
                None => full(1),
            };
            Path::of_fabric(format!("{name}_{family}"), does, move |object| {
                FabricRouter::new(object, program)?.measure(&frame)
            })
        })
    };
    ROWS.into_iter().flat_map(of_row).collect()
}

fn pure_ack(family: &str, ttl: u8, dscp: u8) -> Vec<u8> {
    let ip = match family {
        "v6" => Ip::v6(Vec::new()),
        _ => Ip::v4(),
    };
    let ack = Packet {
        traffic_class: dscp << 2,
        ..segment(ip, 1, ACK, 0)
    };
    let mut frame = ack.bytes();
    // Its checksum is not looked at, but brought up to date.
    let at = ttl_at(&frame);
    frame[at] = ttl;
    frame
}
