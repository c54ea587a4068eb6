//! What probes of idle paths take of a slow link.

use cloudburst_proto::CongestionControl;

use crate::simulation::{
    network::Parcel,
    path::{MILLI, Path, SECOND},
    scenario::Scenario,
    world::World,
};

const LINK_BITS_PER_S: u64 = 1_000_000;
/// Headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;
const PING: u8 = 6;
const PONG: u8 = 7;
/// When the path MTU has been found out, and pings are as short as they can be.
const SETTLED: u64 = 20 * SECOND;
const MEASURED: u64 = 100 * SECOND;

/// Sixteen ports, and messages that all but fill the link, so that most paths carry some now and then.
#[test]
fn probes_of_sixteen_paths_take_little_of_a_megabit() {
    for (name, bytes, gap_ns) in [
        ("a file", 50_000, 450 * MILLI),
        ("messages", 1_000, 10 * MILLI),
    ] {
        let mut scenario = Scenario::plain(1).with_key_pairs();
        scenario = scenario.messages((SETTLED + MEASURED) / gap_ns, bytes, gap_ns);
        scenario.paths = vec![Path::new(LINK_BITS_PER_S, 15_000, 20 * MILLI)];
        (scenario.hosts[0].sockets, scenario.hosts[1].sockets) = (16, 1);
        let config = &scenario.hosts[0].config;
        assert_eq!(config.congestion, CongestionControl::Adaptive);
        let mut world = World::new(scenario);
        world.run_until(SETTLED);
        world.captured = Some(Vec::new());
        world.run_until(SETTLED + MEASURED);
        let captured = world.captured.take().expect("it was asked for");
        let carried = MEASURED / SECOND * LINK_BITS_PER_S / 8;
        let share = |from: usize, wanted: &dyn Fn(&Parcel) -> bool| {
            let own = world.address(from, 0).ip();
            let sent = captured
                .iter()
                .filter(|it| it.from.ip() == own && wanted(it));
            let bytes: usize = sent.map(|it| it.bytes.len() + HEADER_BYTES).sum();
            bytes as f64 / carried as f64
        };
        let is_probe = |parcel: &Parcel| matches!(parcel.bytes[0] & 15, PING | PONG);
        let (there, back) = (share(0, &is_probe), share(1, &is_probe));
        let all = share(0, &|_| true);
        println!(
            "{name}: probes take {there:.4} of the link there, and {back:.4} back; all {all:.3}"
        );
        assert!(all > 0.8, "{name}: the link is not busy: {all}");
        assert!(there > 0.0 && there < 0.02, "{name}: {there}");
    }
}
