//! Real traffic over every scheme that needs no splitter.

use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use flow_testbed::{
    demo,
    experiment::{Experiment, ExperimentError, Measurement, Mode, Progress, Status, Traffic},
    require,
    require::Requirement::*,
    scheme::Scheme,
    topology::TopologyOptions,
    workload::{Background, Schedule, ShortFlows, Workload},
};
use tokio_util::sync::CancellationToken;

/// Two experiments at once would measure each other.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(experiment: &Experiment) -> Result<Vec<Measurement>, Box<dyn Error>> {
    let _turn = turn();
    Ok(experiment.run(&mut (), &CancellationToken::new())?)
}

fn mode(name: &str, scheme: Scheme) -> Mode {
    Mode {
        name: name.to_owned(),
        scheme,
    }
}

#[test]
fn schemes_carry_the_same_flows() -> Result<(), Box<dyn Error>> {
    require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
    require!(
        CongestionControl("cubic"),
        QueueingDiscipline("tbf rate 100mbit burst 3100 limit 250000"),
        NftRule("meta mark set numgen inc mod 2 offset 1"),
        NftRule("ct original packets > 45 ip dscp set 2") => Ok(())
    );
    let measurements = run(&Experiment {
        modes: vec![
            mode("ecmp_flow", Scheme::EcmpFlow),
            mode("ecmp_packet", Scheme::EcmpPacket),
            mode("nft_split", Scheme::NftSplit { threshold: 45 }),
        ],
        topology: TopologyOptions::default(),
        traffic: Traffic::Drawn(Workload {
            short: ShortFlows::mixed(),
            background: Some(Background::elastic(0.5, [100, 100])),
            length: Duration::from_secs(4),
            seed: 1,
        }),
        warm_up: Duration::from_secs(1),
        drain: Duration::from_secs(3),
        rounds: 1,
    })?;
    assert_eq!(measurements.len(), 3);
    let flows = measurements[0].short.samples.len() + measurements[0].short.unfinished;
    for it in &measurements {
        assert_eq!(
            it.short.samples.len() + it.short.unfinished,
            flows,
            "same flows in {it:?}"
        );
        // How fast they are is the demonstration's to say.
        assert!(
            it.short.samples.len() > flows / 2 && !it.long.samples.is_empty(),
            "{it:?}"
        );
        assert!(it.cpu > Duration::from_millis(100), "{:?}", it.cpu);
        let [round] = &it.conditions[..] else {
            panic!("one round: {:?}", it.conditions);
        };
        // No machine sends more than a shaper lets through, but for its burst.
        let delivery = round.delivery;
        assert!(delivery.queued > Duration::ZERO, "{delivery:?}");
        assert!(
            delivery.sent_bytes as f64 <= delivery.due_bytes * 1.05,
            "{delivery:?}"
        );
    }
    Ok(())
}

/// The case that a split must not fall for: a flow's later packets overtake its earlier ones when
/// it changes tunnels in the middle of a burst. Without a change nothing is overtaken, at any time.
#[test]
fn uploads_in_one_tunnel_keep_their_order() -> Result<(), Box<dyn Error>> {
    require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
    let measurements = run(&Experiment {
        modes: vec![mode("one_tunnel", Scheme::OneTunnel)],
        topology: TopologyOptions {
            shape_access: false,
            ..TopologyOptions::default()
        },
        traffic: Traffic::Fixed(Arc::new(Schedule::uploads(200, 40, 60.0, 1))),
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(3),
        rounds: 1,
    })?;
    let one_tunnel = &measurements[0];
    let fct = one_tunnel.short.distribution_ms();
    let (mean, p99) = (fct.mean(), fct.percentile(99.0));
    println!("{:?}, mean {mean:.2} p99 {p99:.2} ms", one_tunnel.tcp);
    assert_eq!(fct.count() + one_tunnel.short.unfinished, 200);
    assert_eq!(one_tunnel.tcp.paws_estab, 0);
    Ok(())
}

#[test]
fn demonstration_without_rates_takes_one_that_it_tried() -> Result<(), Box<dyn Error>> {
    require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
    require!(FileSystem("bpf"), CongestionControl("cubic") => Ok(()));
    let _turn = turn();
    let options = demo::Options {
        total: Duration::from_secs(3),
        ..demo::Options::default()
    };
    let comparison = demo::run(&options, &mut (), &CancellationToken::new())?;
    let [short, long] = comparison.settings.rates_mbit;
    assert!(comparison.settings.calibrated && short == long);
    assert!([100, 50, 20, 10].contains(&short), "{short}");
    assert_eq!(comparison.valid, comparison.why.is_empty());
    Ok(())
}

#[test]
fn cancelled_experiment_ends_at_once() -> Result<(), Box<dyn Error>> {
    require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
    struct CancelInTraffic(CancellationToken);
    impl Progress for CancelInTraffic {
        fn update(&mut self, status: &Status<'_>) {
            if status.done > 0.0 {
                self.0.cancel();
            }
        }
    }
    let _turn = turn();
    let experiment = Experiment {
        modes: vec![mode("one_tunnel", Scheme::OneTunnel)],
        topology: TopologyOptions::default(),
        traffic: Traffic::Fixed(Arc::new(Schedule::uploads(600, 5, 10.0, 1))),
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(60),
        rounds: 1,
    };
    let cancel = CancellationToken::new();
    let begun = Instant::now();
    let ended = experiment.run(&mut CancelInTraffic(cancel.clone()), &cancel);
    assert!(
        matches!(ended, Err(ExperimentError::Cancelled)),
        "{ended:?}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}
