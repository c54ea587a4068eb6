//! The policies of `flow_balance` as the kernel runs them: they choose
//! there as on every other host.

use crate::balance_vectors as vectors;
use crate::support::balancers;
use std::collections::BTreeSet;

use aya::include_bytes_aligned;
use balancers::{Balancer, PROGRAMS, Settings, question};
use flow_balance::ShortFlows;
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use vectors::{Case, Policy};

static OBJECT: &[u8] = include_bytes_aligned!("../../../benches/bpf/balancers.o");

const VECTORS: &str = include_str!("../../../crates/balance/tests/balance_vectors.txt");

const XDP_PASS: u32 = 2;

#[test]
fn golden_vectors_are_replayed_in_the_kernel() {
    require!(Root);
    let mut replayed = BTreeSet::new();
    for case in vectors::parse(VECTORS) {
        let Some((program, settings, short_flows)) = hosted(&case.policy) else {
            continue;
        };
        let mut balancer = Balancer::load(OBJECT, program);
        if let Some(short_flows) = short_flows {
            balancer.share(short_flows);
        }
        replay(&mut balancer, settings, &case);
        replayed.insert(program);
    }
    assert_eq!(replayed, BTreeSet::from(PROGRAMS));
}

fn replay(balancer: &mut Balancer, settings: Settings, case: &Case) {
    for (number, step) in case.steps.iter().enumerate() {
        balancer.ask(question(settings, &step.packet, &step.paths));
        let returned = balancer.run(1);
        assert_eq!(returned, XDP_PASS, "{}, packet {number}", case.name);
        assert_eq!(
            balancer.choice(),
            step.choice,
            "{}, packet {number}",
            case.name
        );
    }
}

/// A fifth of what the kernel allows, as for the splitter's programs.
#[test]
fn the_verifier_has_little_to_do() {
    const LIMIT: u32 = 200_000;
    require!(Root);
    for program in PROGRAMS {
        let balancer = Balancer::load(OBJECT, program);
        let count = balancer
            .verified_instructions()
            .expect("Linux 5.16 reports it");
        println!("{program}: {count} instructions");
        assert!(
            count < LIMIT,
            "`{program}` has {count} instructions to verify"
        );
    }
}

/// The program that hosts a policy, and what it is to be reported; none for placement, which
/// the splitter's own program hosts.
fn hosted(policy: &Policy) -> Option<(&'static str, Settings, Option<ShortFlows>)> {
    let mut settings = Settings::default();
    let program = match *policy {
        Policy::Ecmp(ecmp) => {
            settings.seed = ecmp.seed;
            "ecmp"
        }
        Policy::Rps(rps) => {
            settings.seed = rps.seed;
            "rps"
        }
        Policy::Drb(drb) => {
            settings.seed = drb.seed;
            "drb"
        }
        Policy::Presto(presto) => {
            settings.cell_bytes = presto.cell_bytes.into();
            settings.seed = presto.seed;
            "presto"
        }
        Policy::LetFlow(letflow) => {
            settings.gap_ns = letflow.gap_ns;
            settings.seed = letflow.seed;
            "letflow"
        }
        Policy::Tr(tr, timeout_ns) => {
            settings.threshold_bytes = tr.threshold_bytes;
            settings.guard_ns = tr.guard_ns;
            settings.slack_ns = tr.slack_ns;
            settings.counts_serialisation = tr.counts_serialisation.into();
            settings.seed = tr.seed;
            return Some(("tr", settings, Some(ShortFlows::new(timeout_ns))));
        }
        Policy::Placement(_) => return None,
    };
    Some((program, settings, None))
}
