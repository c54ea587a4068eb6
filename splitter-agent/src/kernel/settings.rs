//! From what the operator wrote to what the kernel programs read.

use splitter_common::config::{Config as Policy, Marking, Unit};
use splitter_common::drain::ServiceTime;
use splitter_common::dscp::Dscp;

use crate::config::{Config, ThresholdUnit, Tunnel};

/// IPv4 and TCP headers without options; what an MTU leaves is a full segment.
const HEADER_BYTES: u32 = 40;

/// The short tunnel is taken to drain at 97 % of its stated rate: encapsulation
/// and framing take their share, and to be late is the safe side.
const CAUTIOUS_PERCENT: u64 = 97;

/// The policy's settings for a configuration, on interfaces whose smallest MTU
/// is `lan_mtu`, with rules that match marks exactly or by the legacy bits.
pub fn policy_settings(config: &Config, lan_mtu: u32, exact_match: bool) -> Policy {
    let unit = match config.flows.unit {
        ThresholdUnit::Packets => Unit::PACKETS,
        ThresholdUnit::Bytes => Unit::BYTES,
    };
    let short_rate = bits_per_second(&config.short);
    Policy {
        threshold: config.first_threshold().into(),
        unit,
        idle_timeout_ns: nanoseconds(config.flows.idle_timeout),
        guard_ns: nanoseconds(config.demotion.guard),
        cap_ns: nanoseconds(config.demotion.cap),
        short_service: ServiceTime::from_bits_per_second(short_rate * CAUTIOUS_PERCENT / 100),
        long_service: ServiceTime::from_bits_per_second(bits_per_second(&config.long)),
        long_queue_ns: nanoseconds(config.demotion.long_queue),
        segment_bytes: u16::try_from(lan_mtu.saturating_sub(HEADER_BYTES)).unwrap_or(u16::MAX),
        marking: if config.shadow {
            Marking::SHADOW
        } else {
            Marking::ON
        },
        reserved: 0,
        short_mark: config.marks.short.policy(),
        long_mark: config.marks.long.policy(),
        match_mask: if exact_match {
            Dscp::ALL_BITS
        } else {
            Dscp::LEGACY_BITS
        },
    }
}

/// 0 when the rate is not stated.
fn bits_per_second(tunnel: &Tunnel) -> u64 {
    tunnel
        .rate_mbit
        .map_or(0, |rate| u64::from(rate.get()) * 1_000_000)
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}
