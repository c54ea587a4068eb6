//! A CPU whose input queue has no room for most of what comes, as in a flood.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flow_testbed::namespace::Namespace;

use super::stranger::{call, load};

const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// What a run may send: of so many turns of the loop the verifier can see the end.
const MOST: u64 = 150_000;
/// What a queue has room for.
const ROOM: &str = "/proc/sys/net/core/netdev_max_backlog";

/// Puts the packet into the CPU's queue as if `lo` had received it, so many times:
/// `bpf_clone_redirect(packet, 1, BPF_F_INGRESS)` in a loop.
const fn instructions(times: u64) -> [u64; 10] {
    [
        0x16bf,
        0x07b7,
        0x61bf,
        0x0000_0001_0000_02b7,
        0x0000_0001_0000_03b7,
        0x0000_000d_0000_0085,
        0x0000_0001_0000_0707,
        (times << 32) | 0xfffa_07a5,
        0x00b7,
        0x95,
    ]
}

/// Fills the queue of a CPU again and again until it is dropped. `BPF_PROG_TEST_RUN` runs a program
/// with softirqs disabled, so that nothing is taken out meanwhile.
pub(crate) struct FullBacklog {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FullBacklog {
    /// Fills it every `pause`, with five times what it has room for: some milliseconds of work.
    pub(crate) fn start(pause: Duration) -> Self {
        let scratch = Namespace::new("flood").expect("root");
        scratch.run("ip link set lo up").expect("it is there");
        let room = std::fs::read_to_string(ROOM).ok();
        let room = room.and_then(|it| it.trim().parse().ok()).unwrap_or(1_000);
        let times = (5 * room).min(MOST);
        assert!(times > 2 * room, "net.core.netdev_max_backlog is {room}");
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let work = move || {
            let program = load("flood", BPF_PROG_TYPE_SCHED_CLS, &instructions(times));
            let program = program.expect("the verifier accepts it");
            while !is_over.load(Ordering::Relaxed) {
                run(&program).expect("the kernel runs it");
                std::thread::sleep(pause);
            }
        };
        let thread = std::thread::spawn(move || scratch.enter(work).expect("it exists"));
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for FullBacklog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        // A test that has failed already says why.
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

/// The beginning of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_length: u32,
    out_length: u32,
    data: u64,
    out: u64,
    repeat: u32,
    duration: u32,
}

fn run(program: &OwnedFd) -> io::Result<()> {
    let data = [0u8; 64];
    let run = TestRun {
        program: program.as_raw_fd().cast_unsigned(),
        data_length: data.len() as u32,
        data: data.as_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    call(BPF_PROG_TEST_RUN, &run).map(drop)
}
