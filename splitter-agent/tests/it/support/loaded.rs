//! Kernel programs that are loaded but attached nowhere: they run on frames
//! that a test or a benchmark hands them (`BPF_PROG_TEST_RUN`). Nothing is
//! pinned, so that the kernel forgets them with the process.

use std::collections::HashMap as StdHashMap;
use std::net::IpAddr;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::programs::{Program, SchedClassifier, TestRun as _, TestRunOptions, TestRunResult, Xdp};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader, Pod};
use nix::time::{ClockId, clock_gettime};
use splitter_datapath::FlowTables;
use splitter_policy::clock::TickClock;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::flow::{FlowEntry, FlowKey, FlowKeyV6, Seeds, TapEntry, TunnelRole};
use splitter_policy::forward::{Mac, TARGET_SLOTS, target};
use splitter_policy::next_hop::{Generation, neighbour};
use splitter_policy::packet_selection::{PacketPassage, PacketSelection};
use splitter_policy::paths::{BalancerNumber, PathCounters};
use splitter_policy::prefix_lengths::PrefixLengths;
use splitter_policy::reverse::ReverseEntry;
use splitter_policy::settings::Settings;
use splitter_policy::sites::SiteKey;
use splitter_policy::table::Layout;
use splitter_policy::thresholds::ThresholdIndex;

/// The splitter's maps and those of its programs that were asked for.
pub(crate) struct Loaded {
    ebpf: Ebpf,
    layout: Layout,
    /// What the splitter's clock was set to last.
    now_ns: u64,
    /// Of next hops, so far.
    generations: u64,
}

/// Any will do here; the agent draws them.
const SEEDS: Seeds = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0xeb44_acca_b455_d165,
];

/// The number of the device that packets without one leave by.
pub(crate) const LOOPBACK: u32 = 1;

/// Level of `aya-log` at which everything is logged.
const TRACE: u8 = 5;

impl Loaded {
    /// Loads `object`, with room for `table_size` flows of each family.
    pub(crate) fn new(object: &[u8], table_size: u32) -> Self {
        Self::with_balancers(object, table_size, [BalancerNumber::TR; 2])
    }

    /// The same, with the balancers by which its program for `balance` chooses for short flows and for long ones.
    pub(crate) fn with_balancers(
        object: &[u8],
        table_size: u32,
        [balancer, long_balancer]: [BalancerNumber; 2],
    ) -> Self {
        let layout = Layout::for_flows(table_size, SEEDS);
        let ebpf = EbpfLoader::new()
            .map_max_entries("FLOWS_V4", layout.groups_v4)
            .map_max_entries("FLOWS_V6", layout.groups_v6)
            .map_max_entries("TAGS", layout.groups_v4 + layout.groups_v6)
            .map_max_entries("LRU_V4", table_size)
            .map_max_entries("LRU_V6", table_size)
            .override_global("AYA_LOG_LEVEL", &TRACE, false)
            .override_global("BALANCER", &balancer.0, false)
            .override_global("LONG_BALANCER", &long_balancer.0, false)
            .load(object)
            .expect("the object loads");
        Self {
            ebpf,
            layout,
            now_ns: 0,
            generations: 0,
        }
    }

    /// The same, with a tap that times packets and has so many places for them.
    #[allow(dead_code, reason = "measurements do not use it")]
    pub(crate) fn with_packets(object: &[u8], selection: PacketSelection, places: u32) -> Self {
        let ebpf = EbpfLoader::new()
            .map_max_entries("FLOWS_V4", 1)
            .map_max_entries("FLOWS_V6", 1)
            .map_max_entries("TAGS", 1)
            .map_max_entries("PACKET_PASSAGES", places)
            .override_global("AYA_LOG_LEVEL", &TRACE, false)
            .override_global("PACKET_SELECTION", &Plain(selection), true)
            .load(object)
            .expect("the object loads");
        Self {
            ebpf,
            layout: Layout::for_flows(1, SEEDS),
            now_ns: 0,
            generations: 0,
        }
    }

    /// A map of the object, to be read or written.
    #[allow(dead_code, reason = "measurements use it")]
    pub(crate) fn map(&mut self, name: &str) -> &mut Map {
        self.ebpf.map_mut(name).expect("is in the object")
    }

    /// A program of the object.
    #[allow(dead_code, reason = "measurements use it")]
    pub(crate) fn program(&self, name: &str) -> &Program {
        self.ebpf.program(name).expect("is in the object")
    }

    /// Tells if the verifier has accepted a program.
    #[allow(dead_code, reason = "measurements use it")]
    pub(crate) fn is_loaded(&self, name: &str) -> bool {
        self.program(name).fd().is_ok()
    }

    /// The same, to be attached.
    #[allow(dead_code, reason = "measurements use it")]
    pub(crate) fn program_mut(&mut self, name: &str) -> &mut Program {
        self.ebpf.program_mut(name).expect("is in the object")
    }

    /// Hands an XDP program to the verifier; it can be run from then on.
    pub(crate) fn load_xdp(&mut self, name: &str) {
        let program = self.ebpf.program_mut(name).expect("is in the object");
        let program: &mut Xdp = program.try_into().expect("is an XDP program");
        program.load().expect("the verifier accepts it");
    }

    /// The same for a program of traffic control.
    pub(crate) fn load_classifier(&mut self, name: &str) {
        let program = self.ebpf.program_mut(name).expect("is in the object");
        let program: &mut SchedClassifier = program.try_into().expect("is a classifier");
        program.load().expect("the verifier accepts it");
    }

    /// Tells the splitter its settings. Its coarse clock stands still from now
    /// on, which no test here takes long enough to notice.
    pub(crate) fn set(&mut self, config: PolicyConfig) {
        self.pass_time(config, 0);
    }

    /// The same so much later than before, or than now. Where the object lets the precise clock be moved, that goes
    /// on from there, too.
    pub(crate) fn pass_time(&mut self, config: PolicyConfig, step_ns: u64) {
        const SHIFT: &str = ".data.shift";
        let real_ns = now_ns();
        let now_ns = self.now_ns.max(real_ns) + step_ns;
        self.now_ns = now_ns;
        if self.ebpf.map(SHIFT).is_some() {
            self.set_section(SHIFT, now_ns - real_ns);
        }
        let clock = TickClock {
            tick_ns: 0,
            offset_ns: now_ns,
        };
        self.set_clocked(config, clock);
    }

    /// Tells the splitter its settings, with a clock that goes on.
    pub(crate) fn set_clocked(&mut self, config: PolicyConfig, clock: TickClock) {
        let map = self
            .ebpf
            .map_mut(".data.settings")
            .expect("is in the object");
        let mut settings: Array<_, Plain<Settings>> = map.try_into().expect("is an array");
        let layout = self.layout;
        let value = Plain(Settings::new(config, clock, layout));
        settings.set(0, value, 0).expect("can be written");
    }

    /// Runs an XDP program on the frame `repeat` times over. The last result
    /// lands in `out`, when that is given.
    pub(crate) fn run_xdp(
        &self,
        name: &str,
        frame: &[u8],
        out: Option<&mut [u8]>,
        repeat: u32,
    ) -> TestRunResult {
        let program = self.ebpf.program(name).expect("is in the object");
        let program: &Xdp = program.try_into().expect("is an XDP program");
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: out,
            repeat,
            ..TestRunOptions::default()
        };
        program.test_run(options).expect("the kernel runs it")
    }

    /// Runs a program of traffic control on the frame.
    pub(crate) fn run_classifier(&self, name: &str, frame: &[u8]) -> TestRunResult {
        let program = self.ebpf.program(name).expect("is in the object");
        let program: &SchedClassifier = program.try_into().expect("is a classifier");
        let options = TestRunOptions {
            data_in: Some(frame),
            ..TestRunOptions::default()
        };
        program.test_run(options).expect("the kernel runs it")
    }

    /// The same with a mark next to the frame; what it returned, the mark then, and the frame.
    pub(crate) fn run_marked(&self, name: &str, frame: &[u8], mark: u32) -> (u32, u32, Vec<u8>) {
        /// Of `struct __sk_buff`.
        const MARK: std::ops::Range<usize> = 8..12;
        const BYTES: usize = 192;
        let program = self.ebpf.program(name).expect("is in the object");
        let program: &SchedClassifier = program.try_into().expect("is a classifier");
        let (mut context, mut reported) = ([0; BYTES], [0; 2 * BYTES]);
        context[MARK].copy_from_slice(&mark.to_ne_bytes());
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ctx_out: Some(&mut reported),
            ..TestRunOptions::default()
        };
        let run = program.test_run(options).expect("the kernel runs it");
        let mark = reported[MARK].try_into().expect("four bytes");
        (run.return_value, u32::from_ne_bytes(mark), out)
    }

    /// Runs the program that counts what leaves `repeat` times over, on a packet that came in by the
    /// loopback device and leaves by it; what it returned, and the frame then.
    pub(crate) fn run_counting(&self, frame: &[u8], repeat: u32) -> (u32, Vec<u8>) {
        self.run_leaving(frame, LOOPBACK, frame.len() as u32, repeat)
    }

    /// The same of a packet that came in by that device, or by none, and has so many bytes on the wire.
    pub(crate) fn run_leaving(
        &self,
        frame: &[u8],
        came_in_by: u32,
        wire_bytes: u32,
        repeat: u32,
    ) -> (u32, Vec<u8>) {
        /// Of `struct __sk_buff`: `ingress_ifindex`.
        const CAME_IN_BY: std::ops::Range<usize> = 36..40;
        /// `wire_len`.
        const ON_WIRE: std::ops::Range<usize> = 160..164;
        const BYTES: usize = 192;
        let program = self.ebpf.program("count_egress");
        let program: Result<&SchedClassifier, _> = program.expect("is in the object").try_into();
        let mut context = [0; BYTES];
        context[CAME_IN_BY].copy_from_slice(&came_in_by.to_ne_bytes());
        context[ON_WIRE].copy_from_slice(&wire_bytes.to_ne_bytes());
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::default()
        };
        let run = program.expect("is a classifier").test_run(options);
        (run.expect("the kernel runs it").return_value, out)
    }

    /// Makes the loopback device one of the site's for the program that counts.
    pub(crate) fn count_at_site(&mut self) {
        let map = self.ebpf.map_mut("SITE_DEVICES").expect("is in the object");
        let mut site: HashMap<_, u32, u32> = map.try_into().expect("is a hash map");
        let inserted = site.insert(LOOPBACK, LOOPBACK, 0);
        inserted.expect("can be written");
    }

    /// Makes the loopback device a tunnel's for the program that counts.
    pub(crate) fn count_at_tunnel(&mut self) {
        let map = self.ebpf.map_mut("EGRESS").expect("is in the object");
        let mut counts: PerCpuHashMap<_, u32, Plain<EgressCounts>> =
            map.try_into().expect("is per CPU");
        let cpus = nr_cpus().expect("they are known");
        let zero = PerCpuValues::try_from(vec![Plain(EgressCounts::ZERO); cpus]);
        let inserted = counts.insert(LOOPBACK, zero.expect("one for each"), 0);
        inserted.expect("can be written");
    }

    /// What has left by the loopback device, if that is counted.
    pub(crate) fn left(&self) -> Option<EgressCounts> {
        let map = self.ebpf.map("EGRESS").expect("is in the object");
        let counts: PerCpuHashMap<_, u32, Plain<EgressCounts>> =
            map.try_into().expect("is per CPU");
        let mut sum = EgressCounts::ZERO;
        let per_cpu = counts.get(&LOOPBACK, 0).ok()?;
        per_cpu.iter().for_each(|counts| sum.add(&counts.0));
        Some(sum)
    }

    /// What came back to the site, by flow.
    pub(crate) fn came_back(&self) -> StdHashMap<FlowKeyV6, ReverseEntry> {
        let map = self.ebpf.map("REVERSE").expect("is in the object");
        let counts: HashMap<_, Plain<FlowKeyV6>, Plain<ReverseEntry>> =
            map.try_into().expect("is a hash map");
        let read = counts.iter().map(|it| it.expect("can be read"));
        read.map(|(key, entry)| (key.0, entry.0)).collect()
    }

    /// Says by which threshold flows to what lies in each prefix go.
    pub(crate) fn set_sites(&mut self, prefixes: &[(IpAddr, u8, ThresholdIndex)]) {
        let map = self.ebpf.map_mut("SITES").expect("is in the object");
        let mut sites: LpmTrie<_, [u32; 5], u32> = map.try_into().expect("is a trie");
        for (address, length, index) in prefixes {
            let SiteKey { words, bits } = SiteKey::of_prefix(*address, *length);
            let inserted = sites.insert(&Key::new(bits, words), index.number() as u32, 0);
            inserted.expect("can be written");
        }
    }

    /// Lets packets for a tunnel be redirected into a device.
    pub(crate) fn redirect_into(&mut self, device: u32, tunnel: TunnelRole) {
        let slot = device % TARGET_SLOTS;
        let map = self.ebpf.map_mut("TARGETS").expect("is in the object");
        let mut targets = DevMap::try_from(map).expect("is a map of devices");
        targets.set(slot, device, None, 0).expect("can be written");
        let map = self.ebpf.map_mut("TARGET_SLOTS");
        let map = map.expect("is in the object");
        let mut slots: HashMap<_, u32, u32> = map.try_into().expect("is a hash map");
        let inserted = slots.insert(target(device, tunnel), slot, 0);
        inserted.expect("can be written");
    }

    /// Says what a device that packets come in by is called on its link.
    pub(crate) fn set_lan_address(&mut self, device: u32, address: [u8; 6]) {
        let map = self
            .ebpf
            .map_mut("LAN_ADDRESSES")
            .expect("is in the object");
        let mut lan: HashMap<_, u32, Plain<Mac>> = map.try_into().expect("is a hash map");
        let inserted = lan.insert(device, Plain(Mac::new(address)), 0);
        inserted.expect("can be written");
    }

    /// Voids what the program has noted of next hops, and has it believe what it notes from now on, with
    /// routing that looks at so much of packets, or at everything.
    pub(crate) fn vouch(&mut self, lengths: Option<&PrefixLengths>) {
        let lengths = lengths.unwrap_or(&PrefixLengths::EVERYTHING);
        self.set_section(".data.prefixes", Plain(*lengths));
        self.generations += 1;
        let generation = Generation::new(self.generations);
        self.set_section(".data.routing", Plain(generation));
        self.vouch_until(u64::MAX);
    }

    /// Has somebody vouch for what was noted and is noted, until then.
    pub(crate) fn vouch_until(&mut self, until_ns: u64) {
        self.set_section(".data.vouched", until_ns);
    }

    /// The time by the splitter's clock, where that stands still.
    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Has the program ask the kernel for each packet.
    pub(crate) fn distrust(&mut self) {
        self.vouch_until(0);
    }

    fn set_section<T: Pod>(&mut self, name: &str, value: T) {
        let map = self.ebpf.map_mut(name).expect("is in the object");
        let mut section: Array<_, T> = map.try_into().expect("is an array");
        section.set(0, value, 0).expect("can be written");
    }

    /// Tells if the program has noted a neighbour with this link address, behind any device.
    pub(crate) fn has_sent_to(&self, link_address: [u8; 6]) -> bool {
        let map = self.ebpf.map("NEIGHBOURS").expect("is in the object");
        let sent: HashMap<_, u64, u64> = map.try_into().expect("is a hash map");
        let name = |slot| neighbour(Mac::new(link_address), slot);
        (0..TARGET_SLOTS).any(|slot| sent.get(&name(slot), 0).is_ok())
    }

    /// What was counted on all CPUs.
    pub(crate) fn counters(&self) -> Counters {
        let map = self.ebpf.map("COUNTERS").expect("is in the object");
        let counters: PerCpuArray<_, Plain<Counters>> = map.try_into().expect("is per CPU");
        let mut sum = Counters::ZERO;
        let per_cpu = counters.get(&0, 0).expect("can be read");
        per_cpu.iter().for_each(|counters| sum.add(&counters.0));
        sum
    }

    /// What was chosen on all CPUs.
    #[allow(dead_code, reason = "not all who load programs have them choose")]
    pub(crate) fn chosen(&self) -> PathCounters {
        let map = self.ebpf.map("PATH_COUNTERS").expect("is in the object");
        let counters: PerCpuArray<_, Plain<PathCounters>> = map.try_into().expect("is per CPU");
        let mut sum = PathCounters::default();
        let per_cpu = counters.get(&0, 0).expect("can be read");
        per_cpu.iter().for_each(|counters| sum.add(&counters.0));
        sum
    }

    /// What the splitter knows of a flow.
    pub(crate) fn flow(&self, key: &FlowKey) -> Option<FlowEntry> {
        self.tables().flow(key, now_ns())
    }

    /// The flow tables' memory.
    pub(crate) fn tables(&self) -> FlowTables {
        let map = |name| match self.ebpf.map(name) {
            Some(Map::Array(data)) => data.fd(),
            _ => panic!("{name} is an array of the object"),
        };
        FlowTables::map(map("FLOWS_V4"), map("FLOWS_V6"), self.layout).expect("can be mapped")
    }

    /// What the tap knows of a flow.
    pub(crate) fn tapped(&self, key: &FlowKey) -> Option<TapEntry> {
        let map = self.ebpf.map("TAPPED").expect("is in the object");
        let flows: HashMap<&MapData, Plain<FlowKeyV6>, Plain<TapEntry>> =
            map.try_into().expect("is a hash map");
        let found = flows.get(&Plain(key.as_v6()), 0);
        found.ok().map(|value| value.0)
    }
}

impl Loaded {
    /// How many packets the tap has selected, and those that it had a place for.
    #[allow(dead_code, reason = "measurements do not use it")]
    pub(crate) fn packets(&self) -> (u64, Vec<PacketPassage>) {
        let map = |name| self.ebpf.map(name).expect("is in the object");
        let selected: Array<&MapData, u64> = map("PACKETS_SELECTED").try_into().expect("an array");
        let passages: Array<&MapData, Plain<PacketPassage>> =
            map("PACKET_PASSAGES").try_into().expect("an array");
        let passages = passages.iter().map(|it| it.expect("can be read").0);
        let passages = passages.filter(|it| it.at_ns != 0).collect();
        (selected.get(&0, 0).expect("can be read"), passages)
    }
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is such a clock");
    std::time::Duration::from(now).as_nanos() as u64
}

/// A value that is shared with the kernel programs.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are
// a valid value.
unsafe impl Pod for Plain<Settings> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Counters> {}
// SAFETY: as above.
unsafe impl Pod for Plain<PathCounters> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Mac> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Generation> {}
// SAFETY: as above.
unsafe impl Pod for Plain<PrefixLengths> {}
// SAFETY: as above.
unsafe impl Pod for Plain<FlowKeyV6> {}
// SAFETY: as above.
unsafe impl Pod for Plain<TapEntry> {}
// SAFETY: as above.
unsafe impl Pod for Plain<PacketPassage> {}
// SAFETY: as above.
unsafe impl Pod for Plain<PacketSelection> {}
// SAFETY: as above.
unsafe impl Pod for Plain<EgressCounts> {}
// SAFETY: as above.
unsafe impl Pod for Plain<ReverseEntry> {}
