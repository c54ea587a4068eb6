//! The network that is recorded and its twin: uplinks, queues, and the flows on them.

use std::time::Duration;

use flow_testbed::{
    topology::{TUNNEL_QUEUE_BYTES, TopologyOptions},
    workload::{Background, Schedule, ShortFlows, Workload},
};

/// Rate of each uplink, which two cores carry beside other work.
pub(crate) const RATE_MBIT: u32 = 20;
/// The time that a packet takes through an uplink, one way.
const DELAY: Duration = Duration::from_millis(10);
/// More than the largest short flow has packets with handshake, FIN and some that are sent again; far less
/// than a long one.
pub(crate) const THRESHOLD_PACKETS: u32 = 60;
/// To so much of its rate the splitter shapes an uplink that classes share: its default.
pub(crate) const SHAPE_PERCENT: u32 = 97;
/// Payload of a long flow: 415 packets.
const LONG_BYTES: u32 = 600_000;
/// Short flows in a second, half up and half down: 4.5 Mbit/s each way.
const SHORT_PER_SECOND: f64 = 40.0;

/// What the queue in front of an uplink holds, in time at its rate.
pub(crate) fn queue_ms() -> u32 {
    TUNNEL_QUEUE_BYTES * 8 / (RATE_MBIT * 1_000)
}

/// The uplinks as the simulator takes them.
pub(crate) fn uplinks() -> String {
    let round_trip_ms = 2 * DELAY.as_millis();
    format!("{RATE_MBIT}mbit/{round_trip_ms}ms,{RATE_MBIT}mbit/{round_trip_ms}ms")
}

/// The uplinks as the testbed takes them. Hosts are as fast as they like: in the twin they are as well.
pub(crate) fn topology() -> TopologyOptions {
    TopologyOptions {
        rates_mbit: [RATE_MBIT; 2],
        shape_access: false,
        delays: Some([DELAY; 2]),
        ..TopologyOptions::default()
    }
}

/// The flows of a seed: short ones of 5, 10, 20 or 40 packets, and long ones that fill `load_percent` of both
/// uplinks in each direction; both arrive as a Poisson process, whatever became of those before.
pub(crate) fn schedule(load_percent: u32, seed: u64, length: Duration) -> Schedule {
    let load = f64::from(load_percent) / 100.0;
    let background = Background {
        bytes: LONG_BYTES,
        ..Background::elastic(load, [RATE_MBIT; 2])
    };
    let workload = Workload {
        short: ShortFlows {
            per_second: SHORT_PER_SECOND,
            ..ShortFlows::mixed()
        },
        background: (load_percent > 0).then_some(background),
        length,
        seed,
    };
    workload.schedule()
}

#[cfg(test)]
mod tests {
    use flow_testbed::workload::{Class, PACKET_PAYLOAD_BYTES};

    use super::*;

    #[test]
    fn classes_of_the_schedule_are_those_of_the_threshold() {
        let schedule = schedule(30, 1, Duration::from_secs(60));
        for flow in schedule.flows() {
            let packets = flow.bytes.div_ceil(PACKET_PAYLOAD_BYTES);
            let is_long = packets > THRESHOLD_PACKETS;
            assert_eq!(flow.class == Class::Long, is_long, "{flow:?}");
        }
        let long = |it: &&flow_testbed::workload::Flow| it.class == Class::Long;
        // 12 Mbit/s in both directions in flows of 5 Mbit with headers: 287 in a minute.
        let long = schedule.flows().iter().filter(long).count();
        assert!((200..380).contains(&long), "{long}");
    }

    #[test]
    fn twin_has_the_uplinks_of_the_testbed() {
        assert_eq!(uplinks(), "20mbit/20ms,20mbit/20ms");
        assert_eq!(queue_ms(), 100);
    }
}
