//! Checks of the keys of ports.

use super::{Checked, full_packet, in_range, require};
use crate::{
    engine::packet::PRIORITIES,
    scenario::{CreditQueueSettings, Discipline, PortSettings, TransportSettings},
};

pub(super) fn check_port(key: &str, port: &PortSettings, transport: &TransportSettings) -> Checked {
    let packet = full_packet(transport);
    let holds_one = |key: &str, bytes: u32| {
        require(bytes >= packet, &format!("{key} = {bytes}"), || {
            format!("the port would never let a full packet of {packet} bytes pass")
        })
    };
    holds_one(&format!("{key}.buffer_bytes"), port.buffer_bytes)?;
    let buffer_us = port.buffer_us.unwrap_or(1.0);
    in_range(&format!("{key}.buffer_us"), buffer_us, 0.001, 60e6)?;
    let is_plain =
        port.discipline == Discipline::Fifo && port.shared.is_none() && port.credit.is_none();
    require(
        port.burst_bytes.is_none() || is_plain,
        &format!("{key}.burst_bytes"),
        || "only a port with one queue has a token bucket; leave it out".to_owned(),
    )?;
    let has_queues = matches!(port.discipline, Discipline::Priority | Discipline::Wrr);
    require(
        has_queues != port.queue.is_empty(),
        &format!("{key}.queue"),
        || "the disciplines `priority` and `wrr` need queues, and the others have none".to_owned(),
    )?;
    require(
        port.queue.len() <= usize::from(PRIORITIES),
        &format!("{key}.queue"),
        || format!("a port has at most {PRIORITIES} queues"),
    )?;
    for (index, queue) in port.queue.iter().enumerate() {
        let key = format!("{key}.queue[{index}]");
        in_range(
            &format!("{key}.weight"),
            f64::from(queue.weight),
            1.0,
            1000.0,
        )?;
        if let Some(bytes) = queue.buffer_bytes {
            holds_one(&format!("{key}.buffer_bytes"), bytes)?;
        }
    }
    if let Some(credit) = &port.credit {
        check_credit(&format!("{key}.credit"), credit)?;
    }
    if let Some(shared) = &port.shared {
        in_range(&format!("{key}.shared.alpha"), shared.alpha, 0.001, 1024.0)?;
        let limit = shared.buffer_bytes as f64 * shared.alpha;
        in_range(
            &format!("{key}.shared.buffer_bytes * alpha"),
            limit,
            f64::from(packet),
            1e12,
        )?;
    }
    Ok(())
}

fn check_credit(key: &str, credit: &CreditQueueSettings) -> Checked {
    in_range(&format!("{key}.share"), credit.share, 1e-4, 1.0)?;
    in_range(
        &format!("{key}.mbps"),
        credit.mbps.unwrap_or(1.0),
        1e-3,
        1e6,
    )?;
    let bytes = |name: &str, value: u32, least: f64| {
        in_range(&format!("{key}.{name}"), f64::from(value), least, 1e9)
    };
    bytes("buffer_bytes", credit.buffer_bytes, 1.0)?;
    bytes("burst_bytes", credit.burst_bytes, 0.0)
}

/// Checks that the ports pass credits of that transport on.
pub(super) fn check_credit_queue(
    key: &str,
    port: &PortSettings,
    transport: &TransportSettings,
) -> Checked {
    let Some(credit) = &port.credit else {
        return require(false, &format!("{key}.credit"), || {
            "hosts send credits, and the port has no queue for them; add `credit = {}`".to_owned()
        });
    };
    let bytes = transport.expresspass.credit_bytes;
    require(
        credit.buffer_bytes >= u32::from(bytes),
        &format!("{key}.credit.buffer_bytes = {}", credit.buffer_bytes),
        || format!("the port would never let a credit of {bytes} bytes pass"),
    )
}
