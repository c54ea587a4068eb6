//! Real traffic over every scheme that needs no splitter.

use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use flow_testbed::{
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
fn schemes_rank_as_they_should() -> Result<(), Box<dyn Error>> {
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
    let [ecmp_flow, ecmp_packet, nft_split] = &measurements[..] else {
        return Err("one measurement for each mode".into());
    };
    let flows = ecmp_flow.short.samples.len() + ecmp_flow.short.unfinished;
    for it in &measurements {
        assert_eq!(
            it.short.samples.len() + it.short.unfinished,
            flows,
            "same flows in {it:?}"
        );
        assert!(
            it.short.unfinished < flows / 20,
            "{} has {}",
            it.name,
            it.short.unfinished
        );
        assert!(
            it.long.samples.len() > 10,
            "{} has {}",
            it.name,
            it.long.samples.len()
        );
        assert!(it.cpu > Duration::from_millis(100), "{:?}", it.cpu);
    }
    let mean = |it: &Measurement| it.short.distribution_ms().mean();
    // About 30 and 18 against 3.4; far from the edge, for this is no benchmark.
    assert!(
        mean(ecmp_flow) > 2.0 * mean(nft_split),
        "{} {}",
        mean(ecmp_flow),
        mean(nft_split)
    );
    assert!(
        mean(ecmp_packet) > mean(nft_split),
        "{} {}",
        mean(ecmp_packet),
        mean(nft_split)
    );
    Ok(())
}

/// The case that a split must not fall for: a flow's later packets overtake its earlier ones when
/// it changes tunnels in the middle of a burst. Without a change nothing of that kind happens.
#[test]
fn uploads_in_one_tunnel_are_undisturbed() -> Result<(), Box<dyn Error>> {
    require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
    let measurements = run(&Experiment {
        modes: vec![
            mode("one_tunnel", Scheme::OneTunnel),
            mode("nft_split", Scheme::NftSplit { threshold: 40 }),
        ],
        topology: TopologyOptions {
            shape_access: false,
            ..TopologyOptions::default()
        },
        traffic: Traffic::Fixed(Arc::new(Schedule::uploads(644, 40, 60.0, 1))),
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(3),
        rounds: 1,
    })?;
    for it in &measurements {
        let fct = it.short.distribution_ms();
        println!(
            "{}: {:?}, mean {:.2} p99 {:.2} ms",
            it.name,
            it.tcp,
            fct.mean(),
            fct.percentile(99.0)
        );
        assert_eq!(fct.count(), 644);
    }
    let one_tunnel = &measurements[0];
    assert_eq!((one_tunnel.tcp.paws_estab, one_tunnel.tcp.timeouts), (0, 0));
    assert!(one_tunnel.short.distribution_ms().percentile(99.0) < 50.0);
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
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}
