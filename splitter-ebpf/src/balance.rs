//! The choice of a tunnel for each packet, where those of a site are one list: a function of its own
//! behind the split program's, and maps that only it uses.
//!
//! What a flow has to remember lies in an array by its hash. Two flows of one hash share that and are
//! kept in order together; nobody can fill it, and nothing is looked up in buckets.

use core::mem::size_of;

use aya_ebpf::Global;
use aya_ebpf::bindings::{__sk_buff, BPF_F_MMAPABLE};
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::bpf_get_hash_recalc;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use flow_balance::{
    Balancer, Drb, Earliest, Ecmp, LetFlow, OwnPaths, Packet, PathId, PathSet, Paths as _, Presto,
    Rps, ShortFlows, TrPaper,
};
use splitter_policy::flow::Class;
use splitter_policy::paths::{BalancerNumber, LivePaths, SitePaths, TunnelQueues, wire_bytes};

use crate::clock;
use crate::word::KernelWord;

mod account;
pub mod redirected;
mod slot;
mod tr;

use account::{count, counters, mark};
use slot::FlowSlot;

/// The number of the balancer of short flows, and of what is not split. The verifier knows it, and leaves out the
/// others.
#[unsafe(no_mangle)]
static BALANCER: Global<u8> = Global::new(BalancerNumber::TR.0);

/// The number of that of long flows.
#[unsafe(no_mangle)]
static LONG_BALANCER: Global<u8> = Global::new(BalancerNumber::TR.0);

/// The balancer of a class, which is given as a number.
#[inline(always)]
fn balancer_of(class: u64) -> BalancerNumber {
    BalancerNumber(match class {
        LONG => LONG_BALANCER.load(),
        _ => BALANCER.load(),
    })
}

/// Tells if one of the classes chooses by a balancer.
#[inline(always)]
fn is_used(number: BalancerNumber) -> bool {
    BALANCER.load() == number.0 || LONG_BALANCER.load() == number.0
}

/// Tells if the classes choose by different balancers, so that each has to know what the other sent.
#[inline(always)]
fn are_mixed() -> bool {
    BALANCER.load() != LONG_BALANCER.load()
}

/// Tells if a balancer has to know when a flow's last packet arrives, and does not note it by itself.
#[inline(always)]
fn order_counts() -> bool {
    is_used(BalancerNumber::PLACEMENT) || are_mixed() && is_used(BalancerNumber::TR)
}

#[btf_map]
static SITE_PATHS: Array<SitePaths, 1> = Array::new();

/// The agent maps it, and mends it by what the queues themselves say.
#[btf_map]
static PATH_QUEUES: Array<TunnelQueues<KernelWord>, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// The most flows that are told apart.
const MOST_FLOWS: usize = 65_536;

/// The bits of a flow's hash that are its place among [`PATH_FLOWS`], of which the agent has made one more.
#[unsafe(no_mangle)]
static PATH_FLOW_MASK: Global<u32> = Global::new(MOST_FLOWS as u32 - 1);

#[btf_map]
static PATH_FLOWS: Array<[u64; size_of::<FlowSlot>() / 8], MOST_FLOWS> = Array::new();

/// What flows have in common under TR to the letter.
#[btf_map]
static PATH_SHORT_FLOWS: Array<ShortFlows, 1> = Array::new();

/// A flow that was silent for so long starts again.
const IDLE_NS: u64 = 30_000_000_000;

/// What each step leaves for the next: the packet, and the path that was chosen.
#[repr(C)]
#[derive(Clone, Copy)]
struct PathScratch {
    now_ns: u64,
    bytes: u64,
    hash: u64,
    class: u64,
    path: u64,
}

#[btf_map]
static PATH_SCRATCH: PerCpuArray<[u64; size_of::<PathScratch>() / 8], 1> = PerCpuArray::new();

/// [`Class`] as a number, and what is not split.
const LONG: u64 = Class::Long as u64;
const NOT_SPLIT: u64 = 2;
const _: () = assert!(Class::Short as u64 == 0 && Class::Long as u64 == 1);
/// Nothing was chosen.
const NONE: u64 = u64::MAX;

/// Has a packet take one of the site's tunnels, if it is IP and there are any.
#[inline(always)]
pub fn choose(context: &TcContext, class: Option<Class>) {
    let class = match class {
        Some(class) => class as u64,
        None => NOT_SPLIT,
    };
    let context = context.skb.skb;
    let balancer = balancer_of(class);
    if balancer == BalancerNumber::TR {
        tr::forward(context, class);
        return;
    }
    // One after the other, for the stack of all of them is more than Linux 6.1 has left.
    if look_at_packet(context, class) == 0 {
        return;
    }
    if ask(balancer) {
        take_path(context);
    }
}

/// Asks a balancer other than TR about the packet that was looked at; false where there is none of that number.
#[inline(always)]
fn ask(balancer: BalancerNumber) -> bool {
    match balancer {
        BalancerNumber::ECMP => choose_ecmp(),
        BalancerNumber::RPS => choose_rps(),
        BalancerNumber::DRB => choose_drb(),
        BalancerNumber::PRESTO => choose_presto(),
        BalancerNumber::LETFLOW => choose_letflow(),
        BalancerNumber::PLACEMENT => {
            choose_own();
            stay_in_order()
        }
        BalancerNumber::TR_PAPER => {
            pass_time();
            count_tr_paper();
            choose_tr_paper()
        }
        _ => return false,
    };
    true
}

/// Puts a packet that a device is handed, and that has not chosen it, into the queue in front of the device's tunnel, if
/// packets choose among tunnels and this is one.
#[inline(always)]
pub fn enter(skb: &__sk_buff, is_from_site: bool) -> Option<PathId> {
    // Both classes have one, or neither.
    if BalancerNumber(BALANCER.load()) == BalancerNumber::NONE {
        return None;
    }
    let (site, queues) = (SITE_PATHS.get(0)?, PATH_QUEUES.get(0)?);
    // What came from the site has chosen its tunnel there, as its mark says; but for what could not be redirected.
    if is_from_site && (site.mark_mask == 0 || skb.mark & site.mark_mask != 0) {
        return None;
    }
    let paths = LivePaths::new(site, queues, None, clock::monotonic_ns());
    // As the queue counts it: headers of each segment, and the device's own.
    paths.enter(skb.ifindex, skb.wire_len)
}

const ETH_P_IP: u32 = 0x0800u16.to_be() as u32;
const ETH_P_IPV6: u32 = 0x86ddu16.to_be() as u32;

/// Notes what balancers look at of a packet; 0 where none is to be asked.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn look_at_packet(context: *mut __sk_buff, class: u64) -> u64 {
    look(context, class).map_or(0, |_| 1)
}

#[inline(always)]
fn look(
    context: *mut __sk_buff,
    class: u64,
) -> Option<(&'static SitePaths, &'static mut PathScratch)> {
    let (site, scratch) = (SITE_PATHS.get(0)?, scratch()?);
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &*context };
    let is_v6 = skb.protocol == ETH_P_IPV6;
    if site.known == 0 || !is_v6 && skb.protocol != ETH_P_IP {
        return None;
    }
    *scratch = PathScratch {
        now_ns: clock::monotonic_ns(),
        bytes: wire_bytes(skb.len, skb.gso_segs, is_v6, site.spared_bytes).into(),
        // SAFETY: the helper takes the context of the program.
        hash: unsafe { bpf_get_hash_recalc(context.cast()) }.into(),
        class,
        path: NONE,
    };
    Some((site, scratch))
}

/// Defines a function for each balancer or step of one, which the verifier checks once. Before Linux 6.9 it checks
/// those that nobody calls, too, so each begins with the number that it knows.
macro_rules! balancers {
    ($($name:ident, $number:ident: $choose:expr;)*) => {$(
        /// Runs the balancer, and notes the path if it has chosen one.
        #[inline(never)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u64 {
            if !is_used(BalancerNumber::$number) {
                return 0;
            }
            let choose: fn(&mut Asked<'_>) -> Option<PathId> = $choose;
            asked().and_then(|mut asked| {
                *asked.chosen = choose(&mut asked)?.index() as u64;
                Some(())
            });
            0
        }
    )*};
}

const SEED: u64 = 0;

balancers! {
    choose_ecmp, ECMP: |asked| Some(asked.choose(&Ecmp { seed: SEED }, &mut (), &mut ()));
    choose_rps, RPS: |asked| {
        let flow = asked.slot()?.flow_next_to_another(BalancerNumber::RPS);
        Some(asked.choose(&Rps { seed: SEED }, &mut (), flow))
    };
    choose_drb, DRB: |asked| {
        let flow = asked.slot()?.flow_next_to_another(BalancerNumber::DRB);
        Some(asked.choose(&Drb { seed: SEED }, &mut (), flow))
    };
    choose_presto, PRESTO: |asked| {
        let presto = Presto {
            cell_bytes: Presto::DEFAULT_CELL_BYTES,
            seed: SEED,
        };
        let flow = asked.slot()?.flow_next_to_another(BalancerNumber::PRESTO);
        Some(asked.choose(&presto, &mut (), flow))
    };
    choose_letflow, LETFLOW: |asked| {
        let gap_ns = asked.paths.site().gap_ns;
        let flow = asked.slot()?.flow_next_to_another(BalancerNumber::LETFLOW);
        Some(asked.choose(&LetFlow { gap_ns, seed: SEED }, &mut (), flow))
    };
    choose_own, PLACEMENT: |asked| Some(asked.own_paths().pick(&asked.paths, &asked.packet));
    // By itself, as above.
    stay_in_order, PLACEMENT: |asked| {
        let (own, slot) = (PathId::from_low_bits(*asked.chosen), asked.slot()?);
        let in_order = asked.own_paths().in_order(own, slot.order(), &asked.paths, &asked.packet);
        Some(in_order.path)
    };
    // By itself, for the verifier would follow each way out of it through the choice.
    count_tr_paper, TR_PAPER: |asked| {
        TrPaper::new(SEED).count(short_flows()?, asked.slot()?.flow(), &asked.packet);
        None
    };
    choose_tr_paper, TR_PAPER: |asked| {
        let (balancer, flow) = (TrPaper::new(SEED), asked.slot()?.flow());
        Some(balancer.choose_counted(short_flows()?, flow, &asked.paths, &asked.packet))
    };
}

/// Lets time pass over the counts of short flows, which TR to the letter asks first. The verifier checks a tick once,
/// and not all that may have passed.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn pass_time() -> u64 {
    for _ in 0..ShortFlows::TICKS {
        if pass_tick() == 0 {
            return 0;
        }
    }
    if let Some((short_flows, now_ns)) = short_flows_now() {
        short_flows.begin_anew(now_ns);
    }
    0
}

/// Lets a tick pass; 0 if it has not.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn pass_tick() -> u64 {
    if !is_used(BalancerNumber::TR_PAPER) {
        return 0;
    }
    short_flows_now().map_or(0, |(it, now_ns)| it.advance_by_a_tick(now_ns).into())
}

/// The counts of short flows, and the time when the packet came.
#[inline(always)]
fn short_flows_now() -> Option<(&'static mut ShortFlows, u64)> {
    let (short_flows, site) = (short_flows()?, SITE_PATHS.get(0)?);
    short_flows.set_timeout(site.gap_ns);
    Some((short_flows, scratch()?.now_ns))
}

#[inline(always)]
fn short_flows() -> Option<&'static mut ShortFlows> {
    // SAFETY: the value stays mapped while the program runs, and is made of integers. What CPUs miscount by
    // overwriting each other's updates passes out of sight.
    Some(unsafe { &mut *PATH_SHORT_FLOWS.get_ptr_mut(0)? })
}

/// A packet, and the paths as it finds them.
struct Asked<'a> {
    paths: LivePaths<'a, KernelWord>,
    packet: Packet,
    /// The hash of its flow as it is, whose low bits are also those of the packet's.
    hash: u32,
    /// As a number.
    class: u64,
    /// Where the number of the path goes.
    chosen: &'a mut u64,
}

impl Asked<'_> {
    #[inline(always)]
    fn choose<B: Balancer>(
        &self,
        balancer: &B,
        shared: &mut B::Shared,
        flow: &mut B::Flow,
    ) -> PathId {
        balancer.choose(shared, flow, &self.paths, &self.packet)
    }

    /// The packet's class and its bytes.
    #[inline(always)]
    const fn to_count(&self) -> (u64, u32) {
        (self.class, self.packet.bytes)
    }

    /// The tunnels of the packet's class.
    #[inline(always)]
    fn own_paths(&self) -> OwnPaths {
        let site = self.paths.site();
        OwnPaths {
            own: PathSet::from_bits(site.own[(self.class & 1) as usize] as u16),
            patience_ns: site.patience_ns,
            seed: SEED,
        }
    }

    /// What is known of the packet's flow.
    #[inline(always)]
    fn slot(&self) -> Option<&'static mut FlowSlot> {
        let place = self.hash & PATH_FLOW_MASK.load();
        let slot = PATH_FLOWS.get_ptr_mut(place)?;
        // SAFETY: the value stays mapped while the program runs, and is made of integers. A flow whose
        // packets come on several CPUs may be noted out of order.
        let slot = unsafe { &mut *slot.cast::<FlowSlot>() };
        slot.see(self.packet.now_ns, IDLE_NS);
        Some(slot)
    }
}

/// What [`look_at_packet`] has noted, and where the answer goes.
#[inline(always)]
fn asked() -> Option<Asked<'static>> {
    asked_of(SITE_PATHS.get(0)?, scratch()?)
}

#[inline(always)]
fn asked_of(site: &'static SitePaths, scratch: &'static mut PathScratch) -> Option<Asked<'static>> {
    let (queues, class) = (PATH_QUEUES.get(0)?, scratch.class);
    // Of the numbers of classes, the one of short flows alone has no bit.
    let is_short = (class | class >> 1) & 1 ^ 1;
    Some(Asked {
        paths: LivePaths::of_short(site, queues, is_short, scratch.now_ns),
        packet: Packet {
            now_ns: scratch.now_ns,
            bytes: scratch.bytes as u32,
            // Its low bits are those of the hash, and its high ones as well spread.
            flow_hash: scratch.hash.wrapping_mul(0x9e37_79b9_0000_0001),
        },
        hash: scratch.hash as u32,
        class,
        chosen: &mut scratch.path,
    })
}

/// Marks the packet for the tunnel that was chosen, and puts it into the queue in front of that.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn take_path(context: *mut __sk_buff) -> u64 {
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &mut *context };
    take_path_of(skb).map_or(0, |()| 1)
}

#[inline(always)]
fn take_path_of(skb: &mut __sk_buff) -> Option<()> {
    let asked = asked()?;
    let (path, is_change) = take(&asked)?;
    mark(skb, &asked, path);
    // Only the search for the earliest arrival tells what order has cost.
    count(counters()?, asked.to_count(), path, [is_change, false]);
    Some(())
}

/// Puts the packet into the queue in front of the tunnel that was chosen. Returns the tunnel, and true if its flow's
/// last packet took another one.
#[inline(always)]
fn take(asked: &Asked<'_>) -> Option<(PathId, bool)> {
    if *asked.chosen == NONE {
        return None;
    }
    let path = PathId::from_low_bits(*asked.chosen);
    let slot = asked.slot()?;
    let arrives_ns = match order_counts() {
        true => asked.paths.arrival_ns(path, &asked.packet),
        false => 0,
    };
    // What is dropped in front of the tunnel leaves its place to the next.
    if asked.paths.send(path, asked.packet.bytes) && order_counts() {
        slot.order().note(Earliest {
            path,
            arrives_ns,
            first_ns: arrives_ns,
        });
    }
    if balancer_of(asked.class) != BalancerNumber::LETFLOW {
        slot.note_flowlet(path, asked.packet.now_ns);
    }
    Some((path, slot.note(path)))
}

#[inline(always)]
fn scratch() -> Option<&'static mut PathScratch> {
    // SAFETY: a per-CPU value, and programs that receive packets do not interrupt each other on one
    // CPU; each step takes it once.
    PATH_SCRATCH
        .get_ptr_mut(0)
        .map(|words| unsafe { &mut *words.cast() })
}
