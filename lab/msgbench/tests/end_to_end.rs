//! Messages over the rig, and whether the rig is what it says.

use std::{
    error::Error,
    io,
    net::UdpSocket,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flow_testbed::{namespace::TUN, require, require::Requirement::*};
use msgbench::{
    cell::Cell,
    measurement::{Measurement, Run},
    rig::{Direction, Impairment, Rig, RigOptions, addresses},
    scenario::Scenario,
    scheme::{self, REQUEST_BYTES, Scheme},
    workload::Workload,
};
use socket2::SockRef;
use tokio_util::sync::CancellationToken;

type TestResult = Result<(), Box<dyn Error>>;

/// Returns early where a rig cannot be built; see [`Rig::require`].
macro_rules! require_rig {
    () => {
        require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"), File(TUN) => Ok(()));
        require!(NftRule("meta mark set jhash ip saddr . ip daddr . th sport . th dport mod 4") => Ok(()));
        require!(NftRule("numgen random mod 1000 < 10 drop"), NftRule("counter") => Ok(()));
        require!(CongestionControl("cubic") => Ok(()));
    };
}

const RTT: Duration = Duration::from_millis(2);

#[test]
fn paths_are_distinguished_by_ports_and_addresses() -> TestResult {
    require_rig!();
    let rig = rig(RTT)?;
    for seed in 1..4 {
        rig.steer(seed)?;
        rig.check_paths()?;
    }
    Ok(())
}

#[test]
fn all_messages_come_when_nothing_is_in_their_way() -> TestResult {
    require_rig!();
    let rig = rig(Duration::ZERO)?;
    for name in ["tcp_cubic", "quic", "cloudburst", "paper"] {
        let measured = measure(&rig, name, Scenario::Idle)?;
        assert!(measured.messages.len() > 50, "{name}");
        for message in &measured.messages {
            let completion = message
                .completion
                .ok_or_else(|| format!("{name}: {message:?}"))?;
            assert!(
                completion > Duration::from_micros(100),
                "{name}: {message:?}"
            );
        }
        assert!(measured.server_cpu > Duration::ZERO, "{name}");
        let payload: u64 = measured.messages.iter().map(|it| u64::from(it.bytes)).sum();
        assert!(measured.wire.to_client > payload, "{name}");
        let requests = measured.messages.len() * REQUEST_BYTES;
        assert!(measured.wire.to_server > requests as u64, "{name}");
    }
    Ok(())
}

#[test]
fn messages_are_counted_as_their_paths_devices_count() -> TestResult {
    require_rig!();
    let rig = rig(Duration::ZERO)?;
    let directions = [Direction::ToServer, Direction::ToClient];
    let devices = || -> Result<_, Box<dyn Error>> {
        let mut bytes = [0; 2];
        for (bytes, direction) in bytes.iter_mut().zip(directions) {
            *bytes = rig.carried(direction)?.iter().map(|it| it.bytes).sum();
        }
        Ok(bytes)
    };
    let counted = || -> Result<_, Box<dyn Error>> {
        let [there, back] = directions.map(|it| rig.message_traffic(it));
        Ok([there?.bytes, back?.bytes])
    };
    let before = (devices()?, counted()?);
    measure(&rig, "tcp_cubic", Scenario::Idle)?;
    let after = (devices()?, counted()?);
    for direction in 0..2 {
        let devices = after.0[direction] - before.0[direction];
        let counted = after.1[direction] - before.1[direction];
        // Connections close meanwhile.
        assert!(
            counted > 0 && devices.abs_diff(counted) <= devices / 1_000,
            "{devices} {counted}"
        );
    }
    Ok(())
}

#[test]
fn multipath_schemes_use_all_paths() -> TestResult {
    require_rig!();
    require!(File("/proc/sys/net/mptcp/enabled") => Ok(()));
    let rig = rig(RTT)?;
    // An even share is 250, which rounds give. noq fills a path before it takes the next one; keeping
    // an idle path alive makes less than 1.
    for (name, least_per_mille) in [("mptcp", 50), ("quic_multipath", 5), ("paper", 200)] {
        let before = rig.carried(Direction::ToClient)?;
        measure(&rig, name, Scenario::Idle)?;
        let after = rig.carried(Direction::ToClient)?;
        let carried = [0, 1, 2, 3].map(|path| after[path].bytes - before[path].bytes);
        let least = carried.iter().sum::<u64>() * least_per_mille / 1_000;
        assert!(carried.iter().all(|it| *it > least), "{name}: {carried:?}");
    }
    Ok(())
}

#[test]
fn impaired_paths_lose_what_they_should() -> TestResult {
    require_rig!();
    let rig = rig(Duration::ZERO)?;
    assert_eq!(delivered(&rig, 400)?, 400);

    rig.impair(Some(Impairment::Dead { path: 2 }))?;
    let before = rig.carried(Direction::ToServer)?;
    let came = delivered(&rig, 400)?;
    let after = rig.carried(Direction::ToServer)?;
    let carried = [0, 1, 2, 3].map(|path| after[path].packets - before[path].packets);
    assert!(carried[2] > 0, "{carried:?}");
    assert_eq!(came as u64, 400 - carried[2], "{carried:?}");

    rig.impair(Some(Impairment::Loss { per_mille: 100 }))?;
    // 900 are expected, and four standard deviations are 38.
    let came = delivered(&rig, 1_000)?;
    assert!((850..950).contains(&came), "{came}");

    rig.impair(None)?;
    assert_eq!(delivered(&rig, 400)?, 400);
    Ok(())
}

#[test]
fn bulk_transfers_fill_the_paths() -> TestResult {
    require_rig!();
    let rig = rig(Duration::ZERO)?;
    let measured = measure(&rig, "tcp_cubic", Scenario::Bulk4)?;
    // 400 would be all, in both directions; a busy machine may not carry that.
    assert!(measured.bulk_mbit_per_s > Some(100.0), "{measured:?}");
    // Messages are told apart from them: they are some 5 MB, in and out, beside 25 MB and more.
    let payload: u64 = measured.messages.iter().map(|it| u64::from(it.bytes)).sum();
    let wire = measured.wire;
    assert!(
        (payload..3 * payload).contains(&wire.to_client),
        "{wire:?}, {payload}"
    );
    Ok(())
}

#[test]
fn bulk_in_the_answers_direction_leaves_the_other_one_alone() -> TestResult {
    require_rig!();
    let rig = rig(Duration::ZERO)?;
    let carried = || -> Result<_, Box<dyn Error>> {
        let mut bytes = [0, 0];
        for (bytes, direction) in bytes
            .iter_mut()
            .zip([Direction::ToServer, Direction::ToClient])
        {
            *bytes = rig
                .carried(direction)?
                .iter()
                .map(|it| it.bytes)
                .sum::<u64>();
        }
        Ok(bytes)
    };
    let before = carried()?;
    let measured = measure(&rig, "tcp_cubic", Scenario::Bulk4Down)?;
    let after = carried()?;
    assert!(measured.bulk_mbit_per_s > Some(50.0), "{measured:?}");
    let [there, back] = [after[0] - before[0], after[1] - before[1]];
    assert!(there * 10 < back, "{there} {back}");
    Ok(())
}

#[test]
fn splitters_share_the_paths_and_leave_nothing() -> TestResult {
    require_rig!();
    require!(FileSystem("bpf"), QueueingDiscipline("htb") => Ok(()));
    let program: &'static str = splitter()?.display().to_string().leak();
    require!(File(program) => Ok(()));
    let schemes = [
        ("cloudburst", Scenario::Bulk4Queue),
        ("paper", Scenario::WholeBoth),
        ("tcp_cubic", Scenario::WholeSplitter),
    ];
    // With a delay line, too, the splitter finds Ethernet headers.
    for (rtt, schemes) in [(Duration::ZERO, &schemes[..]), (RTT, &schemes[..1])] {
        let rig = rig(rtt)?;
        for &(name, scenario) in schemes {
            let before = queues(&rig)?;
            shares_the_paths(&rig, name, scenario)?;
            assert_eq!(queues(&rig)?, before, "{name}");
        }
    }
    Ok(())
}

/// The kernel numbers what is put back anew.
fn queues(rig: &Rig) -> Result<Vec<String>, Box<dyn Error>> {
    let shown = rig.queues()?;
    let words = shown.split_whitespace().filter(|it| !it.ends_with(':'));
    Ok(words.map(str::to_owned).collect())
}

fn shares_the_paths(rig: &Rig, name: &str, scenario: Scenario) -> TestResult {
    let measured = measure(rig, name, scenario)?;
    let messages = measured.messages.iter();
    let arrived = messages.filter(|it| it.completion.is_some());
    assert!(arrived.count() > 50, "{name}: {measured:?}");
    assert!(measured.bulk_mbit_per_s > Some(1.0), "{name}");
    let has_flows = measured.short_flows.is_some();
    assert_eq!(has_flows, scenario.has_load(), "{name}");
    let flows = measured.short_flows.unwrap_or_default();
    assert!(flows.iter().all(Option::is_some), "{name}: {flows:?}");
    Ok(())
}

fn rig(rtt: Duration) -> Result<Rig, Box<dyn Error>> {
    Ok(Rig::build(RigOptions { rate_mbit: 50, rtt })?)
}

fn measure(rig: &Rig, scheme: &str, scenario: Scenario) -> Result<Measurement, Box<dyn Error>> {
    let schemes: Vec<Arc<dyn Scheme>> = scheme::all();
    let named = schemes.iter().find(|it| it.name() == scheme);
    let workload = Workload {
        per_second: 50.0,
        sizes: vec![5_000, 93_000],
        length: Duration::from_secs(2),
    };
    let run = Run {
        rig,
        cell: Cell {
            rtt: RTT,
            scenario,
            load_percent: scenario.has_load().then_some(20),
        },
        scheme: named.ok_or("no such scheme")?,
        arrivals: &workload.arrivals(scenario, 1),
        length: workload.length,
        seed: 1,
        splitter: &splitter()?,
    };
    Ok(run.measure(&CancellationToken::new())?)
}

/// The agent's program, in the directory of this test's profile.
fn splitter() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let profile = own.parent().and_then(Path::parent);
    Ok(profile.ok_or("no directory")?.join("splitter"))
}

/// Sends `count` datagrams, each from another port, and returns how many come.
fn delivered(rig: &Rig, count: usize) -> Result<usize, Box<dyn Error>> {
    let [server, ..] = addresses::servers();
    let receiver = rig.server.enter(|| UdpSocket::bind((server, 0)))??;
    SockRef::from(&receiver).set_recv_buffer_size(1 << 20)?;
    receiver.set_read_timeout(Some(Duration::from_millis(200)))?;
    let to = receiver.local_addr()?;
    rig.client.enter(|| {
        for _ in 0..count {
            UdpSocket::bind((addresses::CLIENT, 0))?.send_to(b"a message", to)?;
        }
        Ok::<_, io::Error>(())
    })??;
    let mut came = 0;
    while receiver.recv(&mut [0; 16]).is_ok() {
        came += 1;
    }
    Ok(came)
}
