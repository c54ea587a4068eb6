//! Softirqs that are kept waiting, as where a host takes the processor away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use splitter_config::PacketLog;
use splitter_datapath::Object;

/// The object's simplest program; each run of it takes some tens of nanoseconds.
const PROGRAM: &str = "read_clocks";

/// Holds softirqs off every CPU now and then until it is dropped.
///
/// `BPF_PROG_TEST_RUN` runs a program over and over with softirqs disabled
/// (`bpf_test_run` in the kernel's net/bpf/test_run.c), and a thread that is bound to a CPU does so
/// there: timers of queueing disciplines and packets that have arrived wait meanwhile.
pub(crate) struct Starved {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
}

impl Starved {
    /// Takes each CPU away for `length`, then leaves it alone for `pause`.
    pub(crate) fn start(length: Duration, pause: Duration) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |cpu: usize| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu).expect("there are so many");
                sched_setaffinity(Pid::from_raw(0), &set).expect("it is there");
                let ebpf = load();
                let once = run(&ebpf, 10_000);
                let repeat = length.as_nanos() / once.as_nanos().max(1);
                let mut turns = 0;
                while !ended.load(Ordering::Relaxed) {
                    run(&ebpf, repeat as u32);
                    turns += 1;
                    std::thread::sleep(pause);
                }
                turns
            })
        };
        let threads = (0..cpus).map(start).collect();
        Self { ended, threads }
    }

    /// Leaves the CPUs alone; how often one was taken away.
    pub(crate) fn end(self) -> u32 {
        self.ended.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads.map(|it| it.join().expect("no panic")).sum()
    }
}

fn load() -> Ebpf {
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut ebpf = EbpfLoader::new()
        .load(object.bytes())
        .expect("the object loads");
    let program = ebpf.program_mut(PROGRAM).expect("is in the object");
    let program: &mut Xdp = program.try_into().expect("is an XDP program");
    program.load().expect("the verifier accepts it");
    ebpf
}

/// Runs the program so many times; how long each took.
fn run(ebpf: &Ebpf, repeat: u32) -> Duration {
    let program = ebpf.program(PROGRAM).expect("is in the object");
    let program: &Xdp = program.try_into().expect("is an XDP program");
    let run = program.test_run(TestRunOptions {
        data_in: Some(&[0; 64]),
        repeat,
        ..TestRunOptions::default()
    });
    run.expect("the kernel runs it").duration
}
