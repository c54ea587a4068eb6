//! How much the kernel's verifier has to do for each program.
//!
//! It gives up at a million instructions, other kernels count differently, and under emulation
//! a machine takes minutes for so many: ours stay far below. What each kernel of `cargo xtask
//! vm-test` counts stands in `bpf/verifier.json`; Linux 6.1 counts 15 % more than this one.

use std::num::NonZeroU32;

use crate::support::loaded::Loaded;
use aya::programs::{Program, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::PacketLog;
use splitter_datapath::{Object, fabric_object};
use splitter_policy::packet_selection::PacketSelection;
use splitter_policy::paths::BalancerNumber;

/// A fifth of what the kernel allows (`BPF_COMPLEXITY_LIMIT_INSNS`), on a kernel of 6.12 or later.
const LIMIT: u32 = 200_000;
/// What logging may take besides, which no packet meets unless somebody asks for it.
const LIMIT_OF_LOGGING: u32 = 20_000;

/// The programs that have a part for each of the balancers.
const BALANCED: [&str; 3] = ["mark_balanced", "split_balanced", "redir_balanced"];

const BALANCERS: [BalancerNumber; 8] = [
    BalancerNumber::PLACEMENT,
    BalancerNumber::ECMP,
    BalancerNumber::RPS,
    BalancerNumber::DRB,
    BalancerNumber::PRESTO,
    BalancerNumber::LETFLOW,
    BalancerNumber::TR,
    BalancerNumber::TR_PAPER,
];

/// Of short flows, and of long ones.
const MIXED: [[BalancerNumber; 2]; 3] = [
    [BalancerNumber::PLACEMENT, BalancerNumber::TR],
    [BalancerNumber::TR, BalancerNumber::LETFLOW],
    [BalancerNumber::RPS, BalancerNumber::PLACEMENT],
];

#[test]
fn the_verifier_has_little_to_do() {
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let mut ebpf = load(level, [BalancerNumber::TR; 2]);
        for (name, program) in ebpf.programs_mut() {
            has_little_to_do(level, name, program);
        }
        let of_both = BALANCERS.map(|it| [it; 2]);
        for balancers in of_both.into_iter().chain(MIXED) {
            let mut ebpf = load(level, balancers);
            for name in BALANCED {
                let program = ebpf.program_mut(name).expect("is in the object");
                has_little_to_do(level, &format!("{name}, {balancers:?}"), program);
            }
        }
    }
}

/// What no packet is selected for is no work for it either, above.
#[test]
fn the_verifier_has_little_to_do_for_a_tap_that_times_packets() {
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let object = Object::for_level(level).expect("is embedded");
        let all = PacketSelection::one_in(NonZeroU32::MIN, [1, 2]);
        let mut timing = Loaded::with_packets(object.bytes(), all, 1);
        has_little_to_do(level, "tap, packets", timing.program_mut("tap"));
    }
}

#[test]
fn the_verifier_has_little_to_do_for_a_leaf_and_a_spine() {
    require!(Root);
    let object = fabric_object().expect("is embedded");
    let mut ebpf = EbpfLoader::new().load(&object).expect("the object loads");
    for (name, program) in ebpf.programs_mut() {
        has_little_to_do(PacketLog::Off, name, program);
    }
}

fn load(level: PacketLog, [balancer, long_balancer]: [BalancerNumber; 2]) -> Ebpf {
    /// Of `aya-log`: everything.
    const TRACE: u8 = 5;
    let object = Object::for_level(level).expect("is embedded");
    EbpfLoader::new()
        .override_global("AYA_LOG_LEVEL", &TRACE, false)
        .override_global("BALANCER", &balancer.0, true)
        .override_global("LONG_BALANCER", &long_balancer.0, true)
        .load(object.bytes())
        .expect("the object loads")
}

fn has_little_to_do(level: PacketLog, name: &str, program: &mut Program) {
    let info = if let Ok(xdp) = <&mut Xdp>::try_from(&mut *program) {
        xdp.load().expect("the verifier accepts it");
        xdp.info()
    } else {
        let classifier: &mut SchedClassifier = program.try_into().expect("is a classifier");
        classifier.load().expect("the verifier accepts it");
        classifier.info()
    };
    let count = info.expect("is loaded").verified_instruction_count();
    let count = count.expect("Linux 5.16 reports it");
    println!("{level:?} {name}: {count} instructions");
    let limit = match level {
        PacketLog::Off => LIMIT,
        PacketLog::Debug | PacketLog::Trace => LIMIT + LIMIT_OF_LOGGING,
    };
    assert!(
        count < limit,
        "the verifier looks at {count} instructions of `{name}`, logging {level:?}: give \
         parts of it to functions that are checked once"
    );
}
