//! What must hold for any bytes whatever; the fuzz targets and the replay of
//! their corpora run these.

use flow_balance::ServiceTime;
use splitter_policy::buffer::{Buffer, RawBuffer};
use splitter_policy::config::{PolicyConfig, Protocols, TunnelUse, Unit};
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::dscp::Dscp;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::packet::{Network, Transport, parse_plain_v4, parse_plain_v6};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::split::Outcome;
use splitter_policy::thresholds::Thresholds;

use super::host::Host;
use super::oracle;

/// Enough packets for a flow to become long and to change tunnels.
const ROUNDS: usize = 5;
const THRESHOLD: u64 = 2;

/// Splits a frame several times over and checks each outcome.
///
/// The first byte of the input chooses the settings, the rest is the frame.
pub(crate) fn split(input: &[u8]) {
    let Some((&choices, frame)) = input.split_first() else {
        return;
    };
    let (mut host, step_ns) = host(choices);
    for _ in 0..ROUNDS {
        host.now_ns += step_ns;
        split_once(&mut host, frame);
    }
}

/// The parser says the same through the kernel's buffer as through a slice, and
/// does not contradict etherparse.
pub(crate) fn parser(frame: &[u8]) {
    /// The kernel's buffer refuses what lies further behind.
    const KERNEL_REACH: usize = 0x7ff;
    // A box ends where its bytes end, so that the address sanitizer sees a
    // read beyond them.
    let mut copy: Box<[u8]> = frame.into();
    let start = copy.as_mut_ptr() as usize;
    // SAFETY: the box outlives the buffer and is not touched meanwhile.
    let raw = unsafe { RawBuffer::new(start, start + copy.len()) };
    let of_raw = parse(&raw);
    if frame.len() <= KERNEL_REACH {
        assert_eq!(of_raw, parse(frame));
    }
    for (network, tcp) in [parse_plain_v4(frame), parse_plain_v6(frame)]
        .into_iter()
        .flatten()
    {
        assert_eq!(parse(frame), Ok((network, Ok(Transport::Tcp(tcp)))));
    }
    oracle::compare(frame);
}

type Parsed = Result<(Network, Result<Transport, PassReason>), PassReason>;

/// All that the parser says of a frame.
pub(crate) fn parse<B: Buffer + ?Sized>(frame: &B) -> Parsed {
    Network::parse(frame).map(|network| (network, Transport::parse(frame, &network)))
}

/// A border set up as `choices` says, and how long it waits between packets.
fn host(choices: u8) -> (Host, u64) {
    let is_chosen = |bit: u32| choices & (1 << bit) != 0;
    let mut config = PolicyConfig {
        thresholds: Thresholds::uniform(THRESHOLD),
        ..PolicyConfig::default()
    };
    if is_chosen(0) {
        (config.unit, config.thresholds) = (Unit::BYTES, Thresholds::uniform(3_000));
    }
    if is_chosen(1) {
        config.short_service = ServiceTime::from_bits_per_second(100_000_000);
        config.long_service = ServiceTime::from_bits_per_second(400_000_000);
    }
    if is_chosen(2) {
        config.match_mask = Dscp::LEGACY_BITS;
        config.protocols = Protocols::UDP.with(Protocols::ESP).with(Protocols::GRE);
    }
    if is_chosen(3) {
        config.segment_bytes = 1_460;
    }
    if is_chosen(4) {
        config.drain_margin_ns = 0;
    }
    if is_chosen(1) && is_chosen(4) {
        config.tunnel_use = TunnelUse::SHARED;
    }
    let room = if is_chosen(5) { 0 } else { 1 };
    // Within the guard, beyond it, beyond the cap, beyond the idle timeout.
    let step_ns = [1_000, 6_000_000, 250_000_000, 31_000_000_000][usize::from(choices >> 6)];
    (Host::new(config, room), step_ns)
}

fn split_once(host: &mut Host, frame: &[u8]) {
    let (before, flows_before) = (host.counters, host.flows().len());
    let mut with_overflow = frame.to_vec();
    let outcome = host.split(&mut with_overflow);

    let changed = changed_bits(frame, &with_overflow);
    let allowed = ip_offset(frame).map_or(vec![], |at| mark_bits(frame, at));
    for (at, bits) in changed {
        let may_change = allowed.iter().find(|(place, _)| *place == at);
        assert!(
            may_change.is_some_and(|(_, mask)| bits & !mask == 0),
            "{outcome:?} changed bits {bits:#04x} of byte {at}"
        );
    }
    if let Some(at) = ip_offset(frame)
        && checksum_is_right(frame, at)
    {
        assert!(
            checksum_is_right(&with_overflow, at),
            "{outcome:?} broke it"
        );
    }
    match outcome {
        Outcome::Split { class, tunnel } => {
            check_split(host, &before, &with_overflow, class, tunnel);
            let started = host.flows().len() - flows_before;
            let events = |counters: &Counters| counters.events(FlowEvent::Started);
            assert_eq!(events(&host.counters) - events(&before), started as u64);
        }
        Outcome::Dropped => {
            assert_eq!(
                with_overflow, frame,
                "a packet that goes nowhere is touched"
            );
        }
        Outcome::Passed(reason) => {
            assert_eq!(host.flows().len(), flows_before);
            check_passed(host, before, frame, &with_overflow, reason);
        }
    }
}

/// A split packet carries the mark of its tunnel and is counted there alone.
fn check_split(
    host: &Host,
    before: &Counters,
    with_overflow: &[u8],
    class: Class,
    tunnel: TunnelRole,
) {
    let marks = Class::ALL.map(|queue_class| Some(host.config.mark(queue_class, tunnel)));
    let may_ride_long = class == Class::Long;
    if host.config.is_shared() {
        assert!(marks.contains(&dscp(with_overflow)));
        assert!(may_ride_long || dscp(with_overflow) == marks[0]);
    } else {
        assert_eq!(dscp(with_overflow), marks[tunnel.own_class() as usize]);
        assert!(may_ride_long || tunnel == TunnelRole::Short);
    }
    for counted_class in Class::ALL {
        for counted_tunnel in TunnelRole::ALL {
            let of = |counters: &Counters| {
                let packets = counters.packets(counted_class, counted_tunnel);
                (packets, counters.bytes(counted_class, counted_tunnel))
            };
            let (packets, bytes) = of(&host.counters);
            let (packets, bytes) = (packets - of(before).0, bytes - of(before).1);
            if (counted_class, counted_tunnel) == (class, tunnel) {
                assert!(packets >= 1 && bytes >= packets);
            } else {
                assert_eq!((packets, bytes), (0, 0));
            }
        }
    }
    for reason in PassReason::ALL {
        assert_eq!(host.counters.passed(reason), before.passed(reason));
    }
    assert_eq!(host.counters.marks_overridden, before.marks_overridden);
    assert_eq!(host.counters.mark_failures, 0);
}

/// A packet that passes is counted under its reason alone, and changed only if
/// it came with a mark that stands for packets that are split.
fn check_passed(
    host: &Host,
    before: Counters,
    frame: &[u8],
    with_overflow: &[u8],
    reason: PassReason,
) {
    let mut expected = before;
    expected.count_passed(reason);
    if reason == PassReason::TableFull && opens(frame) {
        expected.count_event(FlowEvent::Untracked);
    }
    if frame == with_overflow {
        // Only what is not known to be an IP packet may keep a mark of ours.
        let is_ip = Network::parse(frame).is_ok();
        assert!(!is_ip || !dscp(frame).is_some_and(|mark| host.config.is_reserved(mark)));
    } else {
        expected.marks_overridden += 1;
        assert!(dscp(frame).is_some_and(|mark| host.config.is_reserved(mark)));
        assert_eq!(dscp(with_overflow), Some(host.config.unsplit_mark()));
    }
    assert_eq!(host.counters, expected);
}

fn opens(frame: &[u8]) -> bool {
    matches!(parse(frame), Ok((_, Ok(Transport::Tcp(tcp)))) if tcp.flags.opens())
}

/// Which bits differ, byte by byte.
pub(crate) fn changed_bits(before: &[u8], after: &[u8]) -> Vec<(usize, u8)> {
    assert_eq!(before.len(), after.len());
    let differences = before
        .iter()
        .zip(after)
        .map(|(before, after)| before ^ after);
    differences
        .enumerate()
        .filter(|&(_, bits)| bits != 0)
        .collect()
}

/// The bits of the DSCP and of the checksum over it: places and masks.
fn mark_bits(frame: &[u8], at: usize) -> Vec<(usize, u8)> {
    match frame[at] >> 4 {
        4 => vec![(at + 1, 0xfc), (at + 10, 0xff), (at + 11, 0xff)],
        6 => vec![(at, 0x0f), (at + 1, 0xc0)],
        _ => vec![],
    }
}

fn dscp(frame: &[u8]) -> Option<Dscp> {
    let at = ip_offset(frame)?;
    let (first, second) = (*frame.get(at)?, *frame.get(at + 1)?);
    let traffic_class = match first >> 4 {
        4 => second,
        _ => (first << 4) | (second >> 4),
    };
    Dscp::new(traffic_class >> 2)
}

/// Whether the frame holds an IPv4 header whose words add up (RFC 791).
pub(crate) fn checksum_is_right(frame: &[u8], at: usize) -> bool {
    let header_bytes = usize::from(frame[at] & 0x0f) * 4;
    let Some(header) = frame.get(at..at + header_bytes) else {
        return false;
    };
    let words = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.fold(0, |sum, word| match sum + word {
        carried if carried > 0xffff => carried - 0xffff,
        sum => sum,
    });
    frame[at] >> 4 == 4 && sum == 0xffff
}

/// Where the IP header starts, found without the parser that is checked.
fn ip_offset(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81 | 0x91, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    let is_ip = matches!(frame[at..at + 2], [0x08, 0x00] | [0x86, 0xdd]);
    (is_ip && frame.len() > at + 2).then_some(at + 2)
}
