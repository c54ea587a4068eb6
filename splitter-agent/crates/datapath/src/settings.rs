//! From what the operator wrote to what the kernel programs read.

use flow_balance::ServiceTime;
use splitter_advise::ThresholdUnit;
use splitter_config::{Config, Protocol, TunnelPolicy, Tunnels};
use splitter_policy::config::{Marking, PolicyConfig, Protocols, TunnelUse, Unit};
use splitter_policy::dscp::Dscp;
use splitter_policy::thresholds::Thresholds;

/// IPv4 and TCP headers without options; what an MTU leaves is a full segment.
const HEADER_BYTES: u32 = 40;

/// The short tunnel is taken to drain at 97 % of its stated rate: encapsulation
/// and framing take their share, and to be late is the safe side.
const CAUTIOUS_PERCENT: u64 = 97;

/// The policy's settings for a configuration, on interfaces whose smallest MTU
/// is `lan_mtu`, with rules that match marks exactly or by the legacy bits, and
/// with a bit set in `usable` for each tunnel that is up.
pub fn policy_settings(
    config: &Config,
    lan_mtu: u32,
    exact_match: bool,
    usable: u8,
) -> PolicyConfig {
    let unit = match config.flows.unit {
        ThresholdUnit::Packets => Unit::PACKETS,
        ThresholdUnit::Bytes => Unit::BYTES,
    };
    let (short_rate, long_rate) = known_rates(config);
    let (tunnel_use, short_percent) = match config.policy {
        // Where each packet chooses among all tunnels no flow is handed over from one to another.
        _ if config.balancers().is_some() => (TunnelUse::DEDICATED, 100),
        TunnelPolicy::Dedicated => (TunnelUse::DEDICATED, CAUTIOUS_PERCENT),
        // What leaves is what the agent's own shaper lets out.
        TunnelPolicy::Share => (TunnelUse::SHARED, 100),
    };
    PolicyConfig {
        thresholds: Thresholds::uniform(config.first_threshold().into()),
        unit,
        idle_timeout_ns: nanoseconds(config.flows.idle_timeout),
        drain_margin_ns: nanoseconds(config.handover.drain_margin).max(shaper_slack_ns(config)),
        // Nor does one wait for it: the mark says the class, as the model of the queues has it.
        max_wait_ns: match config.balancers() {
            Some(_) => 0,
            None => nanoseconds(config.handover.max_wait),
        },
        short_service: ServiceTime::from_bits_per_second(short_rate * short_percent / 100),
        long_service: ServiceTime::from_bits_per_second(long_rate),
        long_queue_ns: nanoseconds(config.handover.long_queue),
        segment_bytes: u16::try_from(lan_mtu.saturating_sub(HEADER_BYTES)).unwrap_or(u16::MAX),
        marking: if config.shadow {
            Marking::SHADOW
        } else {
            Marking::ON
        },
        tunnel_use,
        protocols: protocols(&config.flows.protocols),
        short_mark: config.marks.short.policy(),
        long_mark: config.marks.long.policy(),
        match_mask: if exact_match {
            Dscp::ALL_BITS
        } else {
            Dscp::LEGACY_BITS
        },
        short_on_long_mark: config.marks.short_on_long.policy(),
        long_on_short_mark: config.marks.long_on_short.policy(),
        usable,
        mark_bits: config.mark_bits().unwrap_or_default(),
    }
}

/// What the model of the queues goes by, in bits per second; 0 for what is not known.
///
/// One queue stands for all tunnels of a class, since the border does not know which of them the
/// kernel's hash takes. Fed with all packets of the short class and drained at the slowest rate it
/// is never emptier than any of its tunnels, so that what it says has left has left. How full the
/// tunnel is that a flow will come to nobody knows; and compared with a queue that may be fuller than any
/// of the real ones, one for the long class would draw flows there. So it has no rate then.
fn known_rates(config: &Config) -> (u64, u64) {
    if config.balancers().is_some() {
        return (0, 0);
    }
    // A rate that is not known is less than any.
    let slowest = |of: &Tunnels| {
        of.iter()
            .map(|it| config.bits_per_second(it))
            .min()
            .flatten()
    };
    let singles = config.short.only().zip(config.long.only());
    let long = singles.and_then(|(_, long)| config.bits_per_second(long));
    (slowest(&config.short).unwrap_or(0), long.unwrap_or(0))
}

fn protocols(list: &[Protocol]) -> Protocols {
    list.iter().fold(Protocols::NONE, |set, protocol| {
        set.with(match protocol {
            Protocol::Tcp => Protocols::NONE,
            Protocol::Udp => Protocols::UDP,
            Protocol::Esp => Protocols::ESP,
            Protocol::Gre => Protocols::GRE,
        })
    })
}

/// What a shared tunnel's shaper does that the model does not see, with 1,500 bytes a packet: one
/// of the long class that is just leaving the slowest tunnel, and a burst of two from another.
fn shaper_slack_ns(config: &Config) -> u64 {
    const BITS: u64 = 3 * 1_514 * 8;
    let rates = config
        .tunnels()
        .filter_map(|(_, it)| config.bits_per_second(it));
    match rates.min() {
        Some(slowest) if config.is_shared() => BITS * 1_000_000_000 / slowest.max(1),
        _ => 0,
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(short: &str, long: &str) -> (u64, u64) {
        let text = format!("lan = 'eth0'\n[short]\n{short}\n[long]\n{long}\n");
        known_rates(&Config::parse(&text, "test").unwrap())
    }

    #[test]
    fn no_flow_waits_for_a_hand_over_where_packets_choose() {
        let settings = |balance: &str| {
            let text = format!(
                "lan = 'l'\n{balance}\n[short]\ndevice = 'a'\nrate_mbit = 9\n[long]\ndevice = 'b'\nrate_mbit = 9\n"
            );
            policy_settings(&Config::parse(&text, "t").unwrap(), 1_500, true, 0b11)
        };
        let by_kernel = settings("");
        assert!(by_kernel.max_wait_ns > 0 && by_kernel.short_service.is_known());
        for balance in ["tr", "placement"] {
            let choosing = settings(&format!("balance = '{balance}'"));
            assert_eq!(choosing.max_wait_ns, 0);
            assert!(!choosing.short_service.is_known());
        }
    }

    #[test]
    fn of_several_tunnels_only_what_keeps_flows_in_order_is_taken_for_granted() {
        let short = "device = 'a'\nrate_mbit = 100";
        let shorts = "tunnels = [{device = 'a', rate_mbit = 300}, {device = 'b', rate_mbit = 100}]";
        let long = "device = 'c'\nrate_mbit = 50";
        let longs = "tunnels = [{device = 'c', rate_mbit = 50}, {device = 'd', rate_mbit = 50}]";
        assert_eq!(rates(short, long), (100_000_000, 50_000_000));
        assert_eq!(rates(shorts, long), (100_000_000, 0));
        assert_eq!(rates(short, longs), (100_000_000, 0));
        let one_unknown = "tunnels = [{device = 'a', rate_mbit = 300}, {device = 'b'}]";
        assert_eq!(rates(one_unknown, long), (0, 0));
    }
}
