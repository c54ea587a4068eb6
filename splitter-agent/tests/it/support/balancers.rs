//! The balancers of the kernel, asked what a test or a benchmark wants to know
//! (`BPF_PROG_TEST_RUN`).

use aya::maps::{Array, MapData};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, Pod};
use flow_balance::{MAX_PATHS, Packet, PathId, Paths, ShortFlows};

#[allow(dead_code, reason = "the kernel uses the rest of it")]
#[path = "../../../../splitter-ebpf/src/bin/balancers/question.rs"]
mod question;

pub(crate) use question::{Question, Settings, View};

/// What the object's programs are called, but for the one that chooses nothing.
pub(crate) const PROGRAMS: [&str; 6] = ["ecmp", "rps", "drb", "presto", "letflow", "tr"];

/// One program with maps of its own, in which no flow is known yet.
pub(crate) struct Balancer {
    ebpf: Ebpf,
    program: &'static str,
}

impl Balancer {
    /// Hands `program` of the object to the verifier.
    pub(crate) fn load(object: &[u8], program: &'static str) -> Self {
        let mut ebpf = Ebpf::load(object).expect("the object loads");
        let xdp = ebpf.program_mut(program).expect("is in the object");
        let xdp: &mut Xdp = xdp.try_into().expect("is an XDP program");
        xdp.load().expect("the verifier accepts it");
        Self { ebpf, program }
    }

    /// Sets the count of short flows that flows share under TR.
    pub(crate) fn share(&mut self, short_flows: ShortFlows) {
        self.set("SHORT_FLOWS", Plain(short_flows));
    }

    /// Puts the question, to be answered by [`run`](Self::run).
    pub(crate) fn ask(&mut self, question: Question) {
        self.set("QUESTION", Plain(question));
    }

    /// Runs the program so many times; what it returned at last.
    pub(crate) fn run(&self, repeat: u32) -> u32 {
        let program = self.ebpf.program(self.program).expect("is in the object");
        let program: &Xdp = program.try_into().expect("is an XDP program");
        let options = TestRunOptions {
            data_in: Some(&[0; 64]),
            repeat,
            ..TestRunOptions::default()
        };
        let run = program.test_run(options).expect("the kernel runs it");
        run.return_value
    }

    /// The path that was chosen last.
    pub(crate) fn choice(&self) -> PathId {
        let map = self.ebpf.map("CHOICE").expect("is in the object");
        let choice: Array<&MapData, u64> = map.try_into().expect("is an array");
        let number = choice.get(&0, 0).expect("can be read") as usize;
        PathId::new(number).expect("is the number of a path")
    }

    /// How much the verifier had to do.
    pub(crate) fn verified_instructions(&self) -> Option<u32> {
        let program = self.ebpf.program(self.program).expect("is in the object");
        let program: &Xdp = program.try_into().expect("is an XDP program");
        let info = program.info().expect("is loaded");
        info.verified_instruction_count()
    }

    fn set<T>(&mut self, name: &str, value: Plain<T>)
    where
        Plain<T>: Pod,
    {
        let map = self.ebpf.map_mut(name).expect("is in the object");
        let mut map: Array<_, Plain<T>> = map.try_into().expect("is an array");
        map.set(0, value, 0).expect("can be written");
    }
}

/// What the kernel is asked of `packet`.
pub(crate) fn question(settings: Settings, packet: &Packet, paths: &impl Paths) -> Question {
    let mut views = [View::default(); MAX_PATHS];
    for path in paths.known().iter() {
        let view = paths.view(path);
        views[path.index()] = View {
            propagation_ns: view.propagation_ns,
            local_backlog_ns: view.local_backlog_ns,
            remote_backlog_ns: view.remote_backlog_ns,
            service: view.service,
            weight: view.weight.into(),
        };
    }
    Question {
        settings,
        now_ns: packet.now_ns,
        flow_hash: packet.flow_hash,
        bytes: packet.bytes.into(),
        known: paths.known().bits().into(),
        usable: paths.usable().bits().into(),
        views,
    }
}

/// A value that is shared with the kernel programs.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are
// a valid value.
unsafe impl Pod for Plain<Question> {}
// SAFETY: as above.
unsafe impl Pod for Plain<ShortFlows> {}
