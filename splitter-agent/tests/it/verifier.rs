//! How much the kernel's verifier has to do for each program.
//!
//! It gives up at a million instructions, other kernels count differently, and under emulation
//! a machine takes minutes for so many: ours stay far below. What each kernel of `cargo xtask
//! vm-test` counts stands in `bpf/verifier.json`.

use aya::EbpfLoader;
use aya::programs::{SchedClassifier, Xdp};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::PacketLog;
use splitter_datapath::Object;

/// A fifth of what the kernel allows (`BPF_COMPLEXITY_LIMIT_INSNS`).
const LIMIT: u32 = 200_000;

#[test]
fn the_verifier_has_little_to_do() {
    /// Of `aya-log`: everything.
    const TRACE: u8 = 5;
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let object = Object::for_level(level).expect("is embedded");
        let mut ebpf = EbpfLoader::new()
            .override_global("AYA_LOG_LEVEL", &TRACE, false)
            .load(object.bytes())
            .expect("the object loads");
        for (name, program) in ebpf.programs_mut() {
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
            assert!(
                count < LIMIT,
                "the verifier looks at {count} instructions of `{name}`, logging {level:?}: give \
                 parts of it to functions that are checked once"
            );
        }
    }
}
