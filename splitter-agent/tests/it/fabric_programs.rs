//! The programs of a leaf and of a spine, run by the kernel (`BPF_PROG_TEST_RUN`) next to the same policy on
//! the host.

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader, Pod};
use flow_balance::{PathId, RemoteBacklogs, ServiceTime};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::FabricRole;
use splitter_datapath::{fabric_object, fabric_programs};
use splitter_policy::dscp::Dscp;
use splitter_policy::fabric::{
    Agreement, FabricCounters, FabricPass, FabricStep, VlanTag, enter_leaf, leave_leaf, pass_spine,
};
use splitter_policy::paths::{SitePaths, TunnelPath};
use splitter_policy::sites::SiteKey;

use crate::policy as support;
use crate::support::loaded::LOOPBACK;
use support::fabric::seeds;
use support::packet::Packet;
use support::shapes::every_shape_with;

const TCX_NEXT: u32 = -1i32 as u32;
const LEAF: u32 = 3;
/// Of the loopback device, by which packets of a test come and go.
const PORT: u32 = 2;
const QUEUE_NS: u64 = 100_000_000;
/// A full frame takes 12 ms.
const RATE: u64 = 1_000_000;

/// A value that is shared with the kernel programs.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<Agreement> {}
// SAFETY: as above.
unsafe impl Pod for Plain<FabricCounters> {}
// SAFETY: as above.
unsafe impl Pod for Plain<RemoteBacklogs> {}
// SAFETY: as above.
unsafe impl Pod for Plain<SitePaths> {}

fn agreement() -> Agreement {
    let dscp = Dscp::new(41).expect("six bits");
    Agreement::new(dscp, 3, QUEUE_NS).expect("it is possible")
}

/// The programs of both roles, of a leaf behind which all addresses lie.
struct Kernel(Ebpf);

impl Kernel {
    fn new() -> Self {
        let object = fabric_object().expect("is embedded");
        let mut ebpf = EbpfLoader::new().load(&object).expect("the object loads");
        for role in [FabricRole::Leaf, FabricRole::Spine] {
            for name in fabric_programs(role) {
                let program = ebpf.program_mut(name).expect("is in the object");
                let program: &mut SchedClassifier = program.try_into().expect("is a classifier");
                program.load().expect("the verifier accepts it");
            }
        }
        let mut kernel = Self(ebpf);
        kernel.set("AGREEMENT", Plain(agreement()));
        let mut ports = SitePaths::default();
        ports.tunnels[PORT as usize] = TunnelPath {
            service: ServiceTime::from_bits_per_second(RATE),
            queue_ns: QUEUE_NS,
            ..TunnelPath::default()
        };
        kernel.set("PORTS", Plain(ports));
        let map = kernel.0.map_mut("PORT_NUMBERS").expect("is in the object");
        let mut numbers: HashMap<_, u32, u32> = map.try_into().expect("is a hash map");
        numbers.insert(LOOPBACK, PORT, 0).expect("can be written");
        let map = kernel.0.map_mut("LEAVES").expect("is in the object");
        let mut leaves: LpmTrie<_, [u32; 5], u32> = map.try_into().expect("is a trie");
        for everything in ["0.0.0.0", "::"] {
            let SiteKey { words, bits } = SiteKey::of_prefix(everything.parse().unwrap(), 0);
            let inserted = leaves.insert(&Key::new(bits, words), LEAF, 0);
            inserted.expect("can be written");
        }
        kernel
    }

    fn set<T: Pod>(&mut self, name: &str, value: T) {
        let map = self.0.map_mut(name).expect("is in the object");
        let mut map: Array<_, T> = map.try_into().expect("is an array");
        map.set(0, value, 0).expect("can be written");
    }

    /// Runs a program on a frame; the packet goes on in any case.
    fn run(&self, name: &str, frame: &[u8]) -> Vec<u8> {
        self.run_from(name, frame, 0)
    }

    /// Runs a program on a frame that has come in by a device; 0 is none.
    fn run_from(&self, name: &str, frame: &[u8], device: u32) -> Vec<u8> {
        // The start of a `__sk_buff`.
        const INGRESS_IFINDEX: usize = 36;
        let mut context = [0; 48];
        context[INGRESS_IFINDEX..][..4].copy_from_slice(&device.to_ne_bytes());
        let program = self.0.program(name).expect("is in the object");
        let program: &SchedClassifier = program.try_into().expect("is a classifier");
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let run = program.test_run(options).expect("the kernel runs it");
        assert_eq!(run.return_value, TCX_NEXT);
        out
    }

    fn counters(&self) -> FabricCounters {
        let map = self.0.map("FABRIC_COUNTERS").expect("is in the object");
        let map: PerCpuArray<_, Plain<FabricCounters>> = map.try_into().expect("is per CPU");
        let mut sum = FabricCounters::default();
        let per_cpu = map.get(&0, 0).expect("can be read");
        per_cpu.iter().for_each(|it| sum.add(&it.0));
        sum
    }

    fn remote(&self) -> RemoteBacklogs {
        let map = self.0.map("REMOTE").expect("is in the object");
        let map: Array<_, Plain<RemoteBacklogs>> = map.try_into().expect("is an array");
        map.get(&LEAF, 0).expect("can be read").0
    }
}

/// Every shape with marks of several kinds, and ACKs as each role meets them.
fn frames() -> Vec<(String, Vec<u8>)> {
    let shapes = [0, 41 << 2, 10 << 2 | 1].into_iter();
    let shapes = shapes.flat_map(every_shape_with);
    let shapes = shapes.map(|it| (it.name, it.frame));
    shapes.chain(seeds()).collect()
}

#[test]
fn every_frame_comes_out_as_on_the_host() {
    require!(Root);
    let (kernel, agreement) = (Kernel::new(), agreement());
    let mut host = FabricCounters::default();
    for (name, frame) in frames() {
        let mut expected = frame.clone();
        host.count(leave_leaf(
            &mut expected[..],
            &agreement,
            VlanTag::None,
            || true,
            |_| Some(LEAF),
        ));
        assert_eq!(kernel.run("leaf_egress", &frame), expected, "leaf, {name}");

        let mut expected = frame.clone();
        let report = enter_leaf(&mut expected[..], &agreement, VlanTag::None, |_| Some(LEAF));
        host.count(report.map(|it| it.step()));
        assert_eq!(kernel.run("leaf_ingress", &frame), expected, "into, {name}");

        let mut expected = frame.clone();
        host.count(pass_spine(
            &mut expected[..],
            &agreement,
            VlanTag::None,
            || Some(0),
        ));
        assert_eq!(
            kernel.run("spine_ingress", &frame),
            expected,
            "spine, {name}"
        );
    }
    assert_eq!(kernel.counters(), host);
    // Not vacuous: every step was met, in both families, and the reasons that lie in a frame.
    assert!(
        FabricStep::ALL.iter().all(|it| host.done(*it) >= 2),
        "{host:?}"
    );
    let met = FabricPass::ALL.iter().filter(|it| host.passed(**it) > 0);
    assert_eq!(met.count(), 3, "{host:?}");
}

#[test]
fn what_leaves_a_spine_is_reported_to_the_leaf_that_it_waits_for() {
    require!(Root);
    let kernel = Kernel::new();
    let full = Packet {
        payload_bytes: 1_446,
        ..Packet::tcp_v4()
    };
    let service = ServiceTime::from_bits_per_second(RATE);
    let frame = full.bytes();
    for _ in 0..5 {
        assert_eq!(kernel.run("spine_egress", &frame), frame);
    }
    let sent_ns = 5 * service.of(frame.len() as u64);
    let seeds = seeds();
    let (_, written) = seeds
        .iter()
        .find(|it| it.0 == "ack_v6_is_written")
        .expect("a seed");
    let reported = kernel.run("spine_ingress", written);
    kernel.run("leaf_ingress", &reported);
    let path = PathId::new(PORT as usize).expect("there is one");
    let heard_ns = kernel
        .remote()
        .behind(path)
        .at(0, flow_balance::Ageing::Never);
    // A step less than there was, and what drained while this ran.
    assert!(heard_ns <= sent_ns, "{heard_ns} of {sent_ns}");
    assert!(
        heard_ns + QUEUE_NS / 31 + 20_000_000 > sent_ns,
        "{heard_ns} of {sent_ns}"
    );
    // Nothing was reported of other paths.
    let other = PathId::new(0).expect("there is one");
    assert_eq!(*kernel.remote().behind(other), Default::default());
}

/// A leaf that is on the way of others' ACKs leaves them alone, and above all those that are marked.
#[test]
fn leaf_writes_and_clears_what_comes_from_hosts_alone() {
    require!(Root);
    let kernel = Kernel::new();
    let seeds = seeds();
    let leaving = || seeds.iter().filter(|it| it.0.contains("leaves"));
    for (name, frame) in leaving() {
        let left = kernel.run_from("leaf_egress", frame, LOOPBACK);
        assert_eq!(&left, frame, "{name}");
    }
    let passed = leaving().count() as u64;
    let counters = kernel.counters();
    assert_eq!(counters.passed(FabricPass::NotFromHost), passed);
    assert_eq!(counters.done(FabricStep::Cleared), 0);
    // Of a device that is no port.
    for (_, frame) in leaving() {
        assert_ne!(&kernel.run_from("leaf_egress", frame, LOOPBACK + 1), frame);
    }
}

#[test]
fn what_is_restored_without_a_port_is_not_read() {
    require!(Root);
    let mut kernel = Kernel::new();
    let map = kernel.0.map_mut("PORT_NUMBERS").expect("is in the object");
    let mut numbers: HashMap<_, u32, u32> = map.try_into().expect("is a hash map");
    numbers.remove(&LOOPBACK).expect("is there");
    for (name, frame) in seeds().iter().filter(|it| it.0.ends_with("is_reported")) {
        assert_ne!(&kernel.run("leaf_ingress", frame), frame, "{name}");
    }
    assert_eq!(kernel.counters().done(FabricStep::Unread), 2);
}

#[test]
fn spine_reports_nothing_of_a_device_that_is_no_port() {
    require!(Root);
    let mut kernel = Kernel::new();
    let map = kernel.0.map_mut("PORT_NUMBERS").expect("is in the object");
    let mut numbers: HashMap<_, u32, u32> = map.try_into().expect("is a hash map");
    numbers.remove(&LOOPBACK).expect("is there");
    for (name, frame) in seeds().iter().filter(|it| it.0.ends_with("is_written")) {
        assert_eq!(&kernel.run("spine_ingress", frame), frame, "{name}");
    }
    assert_eq!(kernel.counters().passed(FabricPass::UnknownPort), 2);
}
