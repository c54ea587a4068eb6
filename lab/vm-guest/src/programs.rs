//! Every program of every object by itself: the verifier takes it, it can be attached, and packets
//! pass a device that it is attached to.

use anyhow::{Context as _, Result, bail};
use aya::programs::tc::qdisc_add_clsact;
use aya::programs::{Program, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use splitter_config::PacketLog;
use splitter_datapath::{Object, fabric_object};
use splitter_policy::paths::BalancerNumber;

use super::agent::expected_hook;
use super::network::{LAN, Network};
use super::qdiscs::remove_clsact;
use super::{Row, last_lines};

/// Attached nowhere else: they only show that the kernel can host them.
static BALANCERS: &[u8] = aya::include_bytes_aligned!("../../../benches/bpf/balancers.o");

/// No table needs more here, and a machine has little memory.
const TABLE_SIZE: u32 = 1024;

/// The globals by which the programs for `balance` know the balancers of short flows and of long ones.
const BALANCERS_OF_CLASSES: [&str; 2] = ["BALANCER", "LONG_BALANCER"];
/// Those besides the one that they have for both as they lie in the object, behind the name of the program.
const OTHER_BALANCERS: [(&str, [BalancerNumber; 2]); 16] = [
    ("mark_balanced, placement", [BalancerNumber::PLACEMENT; 2]),
    ("split_balanced, placement", [BalancerNumber::PLACEMENT; 2]),
    ("redir_balanced, placement", [BalancerNumber::PLACEMENT; 2]),
    ("mark_balanced, ecmp", [BalancerNumber::ECMP; 2]),
    ("mark_balanced, rps", [BalancerNumber::RPS; 2]),
    ("mark_balanced, drb", [BalancerNumber::DRB; 2]),
    ("mark_balanced, presto", [BalancerNumber::PRESTO; 2]),
    ("mark_balanced, letflow", [BalancerNumber::LETFLOW; 2]),
    ("mark_balanced, tr-paper", [BalancerNumber::TR_PAPER; 2]),
    (
        "mark_balanced, placement and tr",
        [BalancerNumber::PLACEMENT, BalancerNumber::TR],
    ),
    (
        "mark_balanced, tr and placement",
        [BalancerNumber::TR, BalancerNumber::PLACEMENT],
    ),
    (
        "mark_balanced, tr and letflow",
        [BalancerNumber::TR, BalancerNumber::LETFLOW],
    ),
    (
        "split_balanced, placement and tr",
        [BalancerNumber::PLACEMENT, BalancerNumber::TR],
    ),
    ("redir_balanced, rps", [BalancerNumber::RPS; 2]),
    ("redir_balanced, tr-paper", [BalancerNumber::TR_PAPER; 2]),
    (
        "redir_balanced, placement and tr",
        [BalancerNumber::PLACEMENT, BalancerNumber::TR],
    ),
];

/// How the verifier says that a program and what it calls need too much stack.
const SMALL_STACK: &str = "combined stack size";

pub(crate) fn try_all(network: &Network, report: impl Fn(Row)) -> Result<()> {
    let splitter = Object::for_level(PacketLog::Off)?;
    let logging = Object::for_level(PacketLog::Trace)?;
    let fabric = fabric_object()?;
    for (object, name) in [
        (splitter.bytes(), "splitter.o"),
        (logging.bytes(), "splitter-log.o"),
        (&fabric, "fabric.o"),
        (BALANCERS, "balancers.o"),
    ] {
        let mut ebpf = load(object, None).with_context(|| format!("cannot load {name}"))?;
        let mut programs: Vec<_> = ebpf.programs_mut().collect();
        programs.sort_by_key(|(name, _)| name.to_owned());
        for (program_name, program) in programs {
            report(try_one(network, name, program_name, program));
        }
    }
    for (name, balancers) in OTHER_BALANCERS {
        let mut ebpf = load(splitter.bytes(), Some(balancers)).context(name)?;
        let program = name.split(',').next().unwrap_or(name);
        let program = ebpf.program_mut(program).context("it is in the object")?;
        report(try_one(network, "splitter.o", name, program));
    }
    Ok(())
}

/// With small tables, whatever they are called.
fn load(object: &[u8], balancers: Option<[BalancerNumber; 2]>) -> Result<Ebpf> {
    let parsed = aya_obj::Object::parse(object)?;
    let mut loader = EbpfLoader::new();
    for (name, map) in &parsed.maps {
        if map.max_entries() > TABLE_SIZE {
            loader.map_max_entries(name, TABLE_SIZE);
        }
    }
    for (name, BalancerNumber(balancer)) in BALANCERS_OF_CLASSES
        .into_iter()
        .zip(balancers.iter().flatten())
    {
        loader.override_global(name, balancer, true);
    }
    Ok(loader.load(object)?)
}

fn try_one(network: &Network, object: &'static str, name: &str, program: &mut Program) -> Row {
    let mut row = Row {
        name: name.to_owned(),
        object: Some(object),
        attached: Vec::new(),
        verified_instructions: None,
        passed: true,
        problem: None,
    };
    match load_and_attach(network, program, &mut row) {
        // What it keeps for each path is more than that verifier leaves next to a call.
        Err(error) if name == "tr" && is_old() && format!("{error:#}").contains(SMALL_STACK) => {
            row.problem = Some(
                "not taken: it needs more stack than the verifier of Linux 6.1 leaves".to_owned(),
            );
        }
        Err(error) => {
            row.passed = false;
            row.problem = Some(format!("{error:#}"));
        }
        Ok(()) => {}
    }
    row
}

/// Whether the kernel is the older of the two that are tried.
fn is_old() -> bool {
    matches!(expected_hook(), Ok("clsact"))
}

fn load_and_attach(network: &Network, program: &mut Program, row: &mut Row) -> Result<()> {
    match program {
        Program::Xdp(xdp) => {
            xdp.load().map_err(refused)?;
            row.verified_instructions = xdp.info()?.verified_instruction_count();
            for (mode, name) in [(XdpMode::Driver, "native"), (XdpMode::Skb, "generic")] {
                pass_xdp(network, xdp, mode).context(name)?;
                row.attached.push(name);
            }
        }
        Program::SchedClassifier(classifier) => {
            classifier.load().map_err(refused)?;
            row.verified_instructions = classifier.info()?.verified_instruction_count();
            pass_classifier(network, classifier)?;
            row.attached.push(expected_hook()?);
        }
        other => bail!(
            "programs of the type {:?} are not known here; teach `lab/vm-guest` to attach them",
            other.prog_type()
        ),
    }
    Ok(())
}

fn refused(error: ProgramError) -> anyhow::Error {
    let words = last_lines(&error.to_string());
    anyhow::anyhow!("the verifier refused it: {words}")
}

fn pass_xdp(network: &Network, program: &mut Xdp, mode: XdpMode) -> Result<()> {
    let link = program.attach(LAN, mode).context("cannot attach it")?;
    network.check_reachable()?;
    Ok(program.detach(link)?)
}

fn pass_classifier(network: &Network, program: &mut SchedClassifier) -> Result<()> {
    let by_clsact = expected_hook()? == "clsact";
    if by_clsact {
        qdisc_add_clsact(LAN).context("cannot make a clsact queueing discipline")?;
    }
    for direction in [TcAttachType::Ingress, TcAttachType::Egress] {
        let link = program.attach(LAN, direction).context("cannot attach it")?;
        network.check_reachable()?;
        program.detach(link)?;
    }
    if by_clsact {
        remove_clsact(LAN)?;
    }
    Ok(())
}
