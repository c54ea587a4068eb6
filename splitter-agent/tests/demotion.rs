//! A flow that crosses the threshold in the middle of a burst must not suffer from its change of
//! tunnels: the hardest case is an upload that ends just after it has become long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow_testbed::attempts;
use flow_testbed::claim;
use flow_testbed::experiment::{Experiment, Measurement, Mode, Traffic};
use flow_testbed::require;
use flow_testbed::require::Requirement::{
    CongestionControl, FileSystem, Program, QueueingDiscipline, Root,
};
use flow_testbed::scheme::{Scheme, SplitterScheme};
use flow_testbed::topology::TopologyOptions;
use flow_testbed::workload::Schedule;
use tokio_util::sync::CancellationToken;

const UPLOADS: usize = 644;
/// The p99 of one round alone is that of six uploads, and varies by a tenth.
const ROUNDS: u32 = 2;
/// Data packets of an upload; SYN, ACK and FIN come on top, so that each crosses the threshold.
const PACKETS: u32 = 40;
const PER_SECOND: f64 = 60.0;

/// Leaves a test early, and says why, where an experiment cannot run.
macro_rules! needs {
    () => {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            FileSystem("bpf")
        );
        require!(
            CongestionControl("cubic"),
            QueueingDiscipline("tbf rate 100mbit burst 3100 limit 250000")
        );
    };
}

/// Two experiments at once would measure each other.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn change_of_tunnels_at_the_drain_does_no_harm() {
    needs!();
    harmless(true);
}

#[test]
fn change_of_tunnels_at_a_gap_does_no_harm() {
    needs!();
    harmless(false);
}

/// Compares the splitter with never switching, on the same uploads.
fn harmless(states_rates: bool) {
    let splitter = Scheme::Splitter(SplitterScheme {
        binary: env!("CARGO_BIN_EXE_splitter").into(),
        threshold: PACKETS,
        attach: "native".to_owned(),
        states_rates,
        configuration: toml::Table::new(),
    });
    let mode = |name: &str, scheme| Mode {
        name: name.to_owned(),
        scheme,
    };
    let experiment = Experiment {
        modes: vec![
            mode("one_tunnel", Scheme::OneTunnel),
            mode("splitter", splitter),
        ],
        topology: TopologyOptions {
            shape_access: false,
            ..TopologyOptions::default()
        },
        traffic: Traffic::Fixed(Arc::new(Schedule::uploads(UPLOADS, PACKETS, PER_SECOND, 1))),
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(3),
        rounds: ROUNDS,
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    attempts::hold("a change of tunnels does no harm", || {
        let measured = experiment.run(&mut (), &CancellationToken::new());
        let measured = measured.expect("the testbed works");
        let [one_tunnel, splitter] = &measured[..] else {
            panic!("one measurement for each mode");
        };
        let (never, ours) = (p99_ms(one_tunnel)?, p99_ms(splitter)?);
        let tcp = splitter.tcp;
        claim!(tcp.paws_estab == 0, "packets overtook each other: {tcp:?}");
        claim!(tcp.timeouts == 0, "{tcp:?}");
        // Not because nothing was there to be moved, or to move it.
        let demotions = splitter.demotions.expect("the splitter tells");
        let all = all_uploads();
        claim!(
            demotions.became_long >= all as u64,
            "{demotions:?} of {all} uploads"
        );
        claim!(!states_rates || demotions.at_cap == 0, "{demotions:?}");
        claim!(
            ours <= 1.2 * never,
            "p99 of {ours:.2} ms against {never:.2} ms without a change"
        );
        Ok(())
    });
}

const fn all_uploads() -> usize {
    UPLOADS * ROUNDS as usize
}

fn p99_ms(measurement: &Measurement) -> Result<f64, String> {
    let times = measurement.short.distribution_ms();
    let (mean, p99) = (times.mean(), times.percentile(99.0));
    let Measurement { name, tcp, .. } = measurement;
    println!("{name}: mean {mean:.2} ms, p99 {p99:.2} ms, {tcp:?}");
    let (finished, all) = (times.count(), all_uploads());
    claim!(finished == all, "{name} finished {finished} of {all}");
    Ok(p99)
}
