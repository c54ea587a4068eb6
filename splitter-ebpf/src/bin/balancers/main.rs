//! The balancers of `flow_balance`, hosted by the kernel: a program
//! for each, to see that it chooses there as everywhere, and what that costs.
//!
//! What a balancer is asked, user space writes into a map. Flows are kept in a
//! hash map and what they share in an array, as in a program that forwards.
//! `Placement` is not among them: the splitter hosts it, for two tunnels.
#![no_std]
#![no_main]

mod question;

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_PASS};
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use flow_balance::{
    Balancer, Drb, DrbFlow, Ecmp, LetFlow, LetFlowFlow, PathId, Presto, PrestoFlow, Rps, RpsFlow,
    ShortFlows, Tr, TrFlow,
};
use question::{Question, Settings};

#[btf_map]
static QUESTION: Array<Question, 1> = Array::new();

/// The number of the path that was chosen last.
#[btf_map]
static CHOICE: Array<u64, 1> = Array::new();

#[btf_map]
static SHORT_FLOWS: Array<ShortFlows, 1> = Array::new();

/// Flows by their hashes.
type Flows<F> = HashMap<u64, F, 4096>;

#[btf_map]
static RPS_FLOWS: Flows<RpsFlow> = Flows::new();

#[btf_map]
static DRB_FLOWS: Flows<DrbFlow> = Flows::new();

#[btf_map]
static PRESTO_FLOWS: Flows<PrestoFlow> = Flows::new();

#[btf_map]
static LETFLOW_FLOWS: Flows<LetFlowFlow> = Flows::new();

#[btf_map]
static TR_FLOWS: Flows<TrFlow> = Flows::new();

/// Defines a program for each balancer. One that has no answer aborts, so
/// that nobody takes an old one for it.
macro_rules! programs {
    ($($(#[$about:meta])* $name:ident: $choose:expr;)*) => {$(
        $(#[$about])*
        #[xdp]
        pub fn $name(_: XdpContext) -> u32 {
            let choose: fn(&Question) -> Option<PathId> = $choose;
            match answer(choose) {
                Some(()) => XDP_PASS,
                None => XDP_ABORTED,
            }
        }
    )*};
}

programs! {
    ecmp: |asked| {
        let Settings { seed, .. } = asked.settings;
        choose(&Ecmp { seed }, &mut (), &mut (), asked)
    };
    rps: |asked| {
        let Settings { seed, .. } = asked.settings;
        choose(&Rps { seed }, &mut (), flow(&RPS_FLOWS, asked)?, asked)
    };
    drb: |asked| {
        let Settings { seed, .. } = asked.settings;
        choose(&Drb { seed }, &mut (), flow(&DRB_FLOWS, asked)?, asked)
    };
    presto: |asked| {
        let presto = Presto {
            cell_bytes: asked.settings.cell_bytes as u32,
            seed: asked.settings.seed,
        };
        choose(&presto, &mut (), flow(&PRESTO_FLOWS, asked)?, asked)
    };
    letflow: |asked| {
        let Settings { gap_ns, seed, .. } = asked.settings;
        choose(&LetFlow { gap_ns, seed }, &mut (), flow(&LETFLOW_FLOWS, asked)?, asked)
    };
    tr: |asked| {
        let tr = Tr {
            threshold_bytes: asked.settings.threshold_bytes,
            guard_ns: asked.settings.guard_ns,
            slack_ns: asked.settings.slack_ns,
            counts_serialisation: asked.settings.counts_serialisation != 0,
            seed: asked.settings.seed,
        };
        choose(&tr, shared(&SHORT_FLOWS)?, flow(&TR_FLOWS, asked)?, asked)
    };
    /// Looks up what TR's program does and chooses nothing: what its figure has in
    /// it besides the choice.
    no_choice: |asked| {
        let (_, flow) = (shared(&SHORT_FLOWS)?, flow(&TR_FLOWS, asked)?);
        PathId::new(flow.bytes() as usize % 16)
    };
}

#[inline(always)]
fn answer(choose: impl Fn(&Question) -> Option<PathId>) -> Option<()> {
    let (question, choice) = (QUESTION.get_ptr_mut(0)?, CHOICE.get_ptr_mut(0)?);
    // SAFETY: the one value of an array map, made of integers; who asks waits for
    // the answer.
    let path = choose(unsafe { &*question })?;
    // SAFETY: as above.
    unsafe {
        *choice = path.index() as u64;
        (*question).now_ns += (*question).settings.between_ns;
    }
    Some(())
}

#[inline(always)]
fn choose<B: Balancer>(
    balancer: &B,
    shared: &mut B::Shared,
    flow: &mut B::Flow,
    asked: &Question,
) -> Option<PathId> {
    Some(balancer.choose(shared, flow, asked, &asked.packet()))
}

/// A new flow of every balancer; not on the stack, of which TR leaves little. Its name
/// is not mangled, as that would tell where the source lay.
#[unsafe(no_mangle)]
static NEW_FLOW: [u64; 16] = [0; 16];

/// The state of the packet's flow, which is a new one if nothing is kept.
#[inline(always)]
fn flow<F>(flows: &'static Flows<F>, asked: &Question) -> Option<&'static mut F> {
    const { assert!(size_of::<F>() <= size_of_val(&NEW_FLOW)) };
    let hash = &asked.flow_hash;
    if flows.get_ptr(hash).is_none() {
        // SAFETY: as long, as checked, and all zeros are the default of each.
        let new = unsafe { &*(&raw const NEW_FLOW).cast::<F>() };
        flows.insert(hash, new, 0).ok()?;
    }
    // SAFETY: the value stays mapped while the program runs, and is made of
    // integers; no other CPU is asked at the same time.
    flows.get_ptr_mut(hash).map(|flow| unsafe { &mut *flow })
}

#[inline(always)]
fn shared<S>(shared: &'static Array<S, 1>) -> Option<&'static mut S> {
    // SAFETY: as above.
    shared.get_ptr_mut(0).map(|shared| unsafe { &mut *shared })
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Never reached: the verifier refuses programs that could end up here.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
