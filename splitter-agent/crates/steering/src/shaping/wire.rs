//! Options of qdiscs, classes and filters as the kernel has them in `linux/pkt_sched.h` and
//! `linux/pkt_cls.h`. The message library carries them as bytes.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcMessage, TcOption};
use rtnetlink::packet_core::{DefaultNla, Emitable as _, Nla as _, NlasIterator};

use super::filter::Instruction;
use super::wanted::FQ_CODEL;
use super::{TcKind, TcObject};

const TCA_OPTIONS: u16 = 2;

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const HTB_VERSION: u32 = 3;
/// `TC_LINKLAYER_ETHERNET`: the kernel counts bytes as they are.
const LINKLAYER_ETHERNET: u8 = 1;
/// Where the level of a class stands, which the kernel alone knows.
const LEVEL: std::ops::Range<usize> = 36..40;

const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
const TCA_FQ_CODEL_ECN: u16 = 4;
const TCA_FQ_CODEL_MEMORY_LIMIT: u16 = 9;

const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
/// `ETH_P_ALL` in network byte order, below priority 1.
const FILTER_INFO: u32 = 1 << 16 | 0x0300;

/// What a class of HTB is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HtbClass {
    /// What it is guaranteed, in bytes a second.
    pub(super) rate: u64,
    /// What it may borrow up to.
    pub(super) ceiling: u64,
    /// Bytes that may leave at once of what is guaranteed.
    pub(super) own_burst: u64,
    /// Bytes that may leave at once in all.
    pub(super) burst: u64,
    /// Bytes of one turn among classes of the same priority.
    pub(super) quantum: u32,
    /// Lower ones come first.
    pub(super) priority: u32,
}

/// Options of an HTB root whose default class has the minor number `default`, and their fingerprint.
pub(super) fn htb_root(default: u16) -> (Vec<u8>, Vec<u8>) {
    let rate_to_quantum = 10;
    let default = u32::from(default).to_ne_bytes();
    let mut init = Vec::new();
    for word in [HTB_VERSION, rate_to_quantum] {
        init.extend(word.to_ne_bytes());
    }
    init.extend(default);
    init.extend([0; 8]);
    (attribute(TCA_HTB_INIT, &init), default.to_vec())
}

/// Options of an HTB class, and their fingerprint.
pub(super) fn htb_class(class: &HtbClass) -> (Vec<u8>, Vec<u8>) {
    let mut parameters = [rate_spec(class.rate), rate_spec(class.ceiling)].concat();
    for word in [
        ticks(class.own_burst, class.rate),
        ticks(class.burst, class.ceiling),
        class.quantum,
        0,
        class.priority,
    ] {
        parameters.extend(word.to_ne_bytes());
    }
    let mut options = attribute(TCA_HTB_PARMS, &parameters);
    for (kind, rate) in [
        (TCA_HTB_RATE64, class.rate),
        (TCA_HTB_CEIL64, class.ceiling),
    ] {
        if rate > u32::MAX.into() {
            options.extend(attribute(kind, &rate.to_ne_bytes()));
        }
    }
    (options, parameters)
}

/// Options of a FIFO that holds so many bytes or packets; they are their own fingerprint.
pub(super) fn fifo(limit: u32) -> Vec<u8> {
    limit.to_ne_bytes().to_vec()
}

/// Options of a fair queue with CoDel (RFC 8290) that marks ECN and takes so much memory, and their
/// fingerprint: the kernel shows times rounded.
pub(super) fn fq_codel(target_us: u32, interval_us: u32, memory_bytes: u32) -> (Vec<u8>, Vec<u8>) {
    let options = [
        (TCA_FQ_CODEL_TARGET, target_us),
        (TCA_FQ_CODEL_INTERVAL, interval_us),
        (TCA_FQ_CODEL_ECN, 1),
        (TCA_FQ_CODEL_MEMORY_LIMIT, memory_bytes),
    ];
    let options = options.map(|(kind, word)| attribute(kind, &word.to_ne_bytes()));
    (options.concat(), memory_bytes.to_ne_bytes().to_vec())
}

/// Options of a filter that runs a program, and their fingerprint.
pub(super) fn bpf_filter(program: &[Instruction]) -> (Vec<u8>, Vec<u8>) {
    let bytes: Vec<u8> = program
        .iter()
        .copied()
        .flat_map(Instruction::to_bytes)
        .collect();
    let count = u16::try_from(program.len()).unwrap_or(u16::MAX);
    let mut options = attribute(TCA_BPF_OPS_LEN, &count.to_ne_bytes());
    options.extend(attribute(TCA_BPF_OPS, &bytes));
    (options, bytes)
}

/// Bytes a second as `tc_ratespec`; beyond 32 bits another attribute holds them.
fn rate_spec(rate: u64) -> Vec<u8> {
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    let mut spec = vec![0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    spec.extend(rate.to_ne_bytes());
    spec
}

/// How long `bytes` take, in the scheduler's ticks of 64 ns.
fn ticks(bytes: u64, rate: u64) -> u32 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(ns / 64).unwrap_or(u32::MAX)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

impl TcObject {
    fn message(&self, device: u32) -> TcMessage {
        let mut message = TcMessage::with_index(device.cast_signed());
        message.header.parent = self.parent.into();
        message.header.handle = self.handle.into();
        if self.tc_kind == TcKind::Filter {
            message.header.info = FILTER_INFO;
        }
        message
            .attributes
            .push(TcAttribute::Kind(self.kind.clone()));
        message
    }

    /// The message that adds it to a device.
    pub(super) fn to_add(&self, device: u32) -> RouteNetlinkMessage {
        let mut message = self.message(device);
        if !self.options.is_empty() {
            let options = DefaultNla::new(TCA_OPTIONS, self.options.clone());
            message.attributes.push(TcAttribute::Other(options));
        }
        match self.tc_kind {
            TcKind::Qdisc => RouteNetlinkMessage::NewQueueDiscipline(message),
            TcKind::Class => RouteNetlinkMessage::NewTrafficClass(message),
            TcKind::Filter => RouteNetlinkMessage::NewTrafficFilter(message),
        }
    }

    /// The message that removes it, if it is a qdisc.
    pub(super) fn to_remove(&self, device: u32) -> RouteNetlinkMessage {
        RouteNetlinkMessage::DelQueueDiscipline(self.message(device))
    }

    /// What a message of a listing shows; `None` for what has no kind or options.
    pub(super) fn from_message(tc_kind: TcKind, message: &TcMessage) -> Option<Self> {
        let mut object = Self {
            tc_kind,
            parent: message.header.parent.into(),
            handle: match tc_kind {
                TcKind::Filter => 0,
                TcKind::Qdisc | TcKind::Class => message.header.handle.into(),
            },
            kind: String::new(),
            options: Vec::new(),
            fingerprint: Vec::new(),
        };
        for attribute in &message.attributes {
            match attribute {
                TcAttribute::Kind(kind) => object.kind.clone_from(kind),
                TcAttribute::Options(options) => object.options = raw(options),
                _ => {}
            }
        }
        object.fingerprint = fingerprint(tc_kind, &object.kind, &object.options);
        (!object.kind.is_empty()).then_some(object)
    }
}

/// The options as the kernel sent them.
fn raw(options: &[TcOption]) -> Vec<u8> {
    if let [TcOption::Other(whole)] = options {
        let mut bytes = vec![0; whole.value_len()];
        whole.emit_value(&mut bytes);
        return bytes;
    }
    let mut bytes = vec![0; options.buffer_len()];
    options.emit(&mut bytes);
    bytes
}

fn fingerprint(tc_kind: TcKind, kind: &str, options: &[u8]) -> Vec<u8> {
    let part = |wanted: u16| {
        let mut attributes = NlasIterator::new(options).filter_map(Result::ok);
        let found = attributes.find(|attribute| attribute.kind() == wanted);
        found.map(|attribute| attribute.value().to_vec())
    };
    match (tc_kind, kind) {
        (TcKind::Qdisc, "htb") => part(TCA_HTB_INIT)
            .and_then(|init| init.get(8..12).map(<[u8]>::to_vec))
            .unwrap_or_default(),
        (TcKind::Class, "htb") => part(TCA_HTB_PARMS)
            .map(|mut parameters| {
                if let Some(level) = parameters.get_mut(LEVEL) {
                    level.fill(0);
                }
                parameters
            })
            .unwrap_or_default(),
        (TcKind::Qdisc, FQ_CODEL) => part(TCA_FQ_CODEL_MEMORY_LIMIT).unwrap_or_default(),
        (TcKind::Filter, "bpf") => part(TCA_BPF_OPS).unwrap_or_default(),
        _ => options.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_of_100_mbit_is_what_tc_sends() {
        let class = HtbClass {
            rate: 12_500_000,
            ceiling: 12_500_000,
            own_burst: 3_100,
            burst: 3_100,
            quantum: 3_028,
            priority: 1,
        };
        let (options, fingerprint) = htb_class(&class);
        assert_eq!(fingerprint.len(), 44);
        assert_eq!(options.len(), 48, "one attribute");
        // 3,100 bytes at 12.5 MB/s take 248 us, or 3,875 ticks.
        assert_eq!(fingerprint[24..28], 3_875u32.to_ne_bytes());
        assert_eq!(
            super::fingerprint(TcKind::Class, "htb", &options),
            fingerprint
        );
    }

    #[test]
    fn rates_beyond_32_bits_are_distinguished() {
        let class = HtbClass {
            rate: 12_500_000_000,
            ceiling: 12_500_000_000,
            own_burst: 3_125_000,
            burst: 3_125_000,
            quantum: 3_028,
            priority: 0,
        };
        let (options, fingerprint) = htb_class(&class);
        assert_eq!(options.len(), 48 + 12 + 12);
        assert_eq!(fingerprint[8..12], u32::MAX.to_ne_bytes());
    }
}
