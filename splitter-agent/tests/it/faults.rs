//! Faults: nothing is lost, or what is lost is named and counted.

use crate::support::daemon;
use crate::support::site;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};
use daemon::Daemon;
use flow_testbed::require;
use flow_testbed::require::Requirement::{File, Program};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use site::{Connection, Site, on_site, stdout, within};
use splitter_config::PacketLog;
use splitter_datapath::Object;

/// How long it may take to notice and mend: the agent looks every second.
const MENDED: Duration = Duration::from_secs(10);
/// Longer than the agent leaves between two sweeps of its table.
const SWEPT: Duration = Duration::from_secs(7);
/// Over any threshold here.
const LONG_BYTES: usize = 200_000;

/// From the first to the last thing that `up` does: whatever it had done by then, the next one goes
/// on from there, and `down` takes it back.
#[test]
fn up_that_is_killed_is_finished_by_the_next_or_taken_down() {
    const POINTS: u32 = 12;
    on_site(|site| {
        let before = site.routing();
        // The shortest of some times, so that the machine's other work does not spread the points
        // over more than what `up` does.
        let took = (0..3).map(|_| {
            let begun = Instant::now();
            site.json(&["up"]);
            let took = begun.elapsed();
            site.json(&["down"]);
            took
        });
        let took = took.min().expect("there are three");
        let mut connection = Connection::open(&site.topology);
        let mut cut_short = 0;
        // On a machine that is busy otherwise `up` may have ended where it should be cut short.
        for turn in 0..3 * (POINTS + 1) {
            let point = turn % (POINTS + 1);
            if turn > POINTS && cut_short > POINTS / 2 {
                break;
            }
            let up = Daemon::start(site.command(&["up"]), &site.path("log"));
            std::thread::sleep(took * point / POINTS);
            cut_short += u32::from(up.is_running());
            // That kills it.
            drop(up);
            // Packets find a way at each point.
            connection.send(20_000);
            if point.is_multiple_of(2) {
                // What was attached by a process alone is detached a moment after it.
                site.wait_for("`up` to finish it", || {
                    site.splitter(&["up"]).status.success().then_some(())
                });
                assert_eq!(
                    site.json(&["status"])["in_place"],
                    true,
                    "killed at {point}"
                );
                connection.send(20_000);
            }
            site.json(&["down"]);
            site.wait_for("nothing to be left", || {
                (site.routing() == before).then_some(())
            });
            site.assert_clean(&before);
        }
        assert!(cut_short > POINTS / 2, "only {cut_short} were cut short");
    });
}

#[test]
fn foreign_xdp_program_is_named() {
    on_site(|site| {
        let before = site.routing();
        let object = Object::for_level(PacketLog::Off).expect("is embedded");
        let stranger = site.border().enter(|| attach_stranger(&object, "gen0"));
        let stranger = stranger.expect("it exists");
        let attached = site.routing();
        for command in ["run", "up", "plan"] {
            let reported = site.refused(&[command], 5);
            let words = "`gen0` has another XDP program attached already: `read_clocks`, number ";
            assert!(reported.contains(words), "{command}: {reported}");
            assert_eq!(site.routing(), attached, "{command}");
        }
        drop(stranger);
        site.wait_for("it to be detached", || {
            (site.routing() == before).then_some(())
        });
        site.json(&["up"]);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

/// Detached when it is dropped.
fn attach_stranger(object: &Object, device: &str) -> Ebpf {
    let parsed = aya_obj::Object::parse(object.bytes()).expect("it is whole");
    let mut loader = aya::EbpfLoader::new();
    for name in parsed.maps.keys() {
        loader.map_max_entries(name, 1);
    }
    let mut ebpf = loader.load(object.bytes()).expect("it loads");
    let program = ebpf.program_mut("read_clocks").expect("is in the object");
    let program: &mut Xdp = program.try_into().expect("is an XDP program");
    program.load().expect("the verifier accepts it");
    let attached = program.attach(device, XdpMode::Driver);
    attached.expect("nothing else is attached");
    ebpf
}

/// A file system of a few pages, full but for what is in it.
struct FullDisk<'a>(&'a Path);

impl<'a> FullDisk<'a> {
    fn mount(path: &'a Path) -> Self {
        std::fs::create_dir(path).expect("a directory");
        let size = Some("size=64k,mode=0755");
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), size).expect("we are root");
        Self(path)
    }

    fn fill(&self) {
        let path = self.0.join("filling");
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.expect("there are inodes");
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for FullDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn full_disk_keeps_up_from_beginning_and_not_from_ending() {
    on_site(|site| {
        let path = site.path("full");
        let disk = FullDisk::mount(&path);
        site.configure(&format!("runtime_dir = {path:?}"));
        let before = site.routing();
        disk.fill();
        for command in ["run", "up"] {
            let reported = site.refused(&[command], 1);
            let words = [
                "cannot write ",
                "test/state.json.new: No space left on device",
            ];
            assert!(
                words.iter().all(|word| reported.contains(word)),
                "{reported}"
            );
            assert_eq!(site.routing(), before);
            assert!(!site.bpffs().join("splitter/test").exists());
        }

        std::fs::remove_file(path.join("filling")).expect("it is there");
        let daemon = site.run();
        let set_up = site.routing();
        disk.fill();
        site.border()
            .run("ip rule del priority 1601 iif lan0")
            .expect("it is there");
        within(MENDED, "the rule to be back", || {
            (site.routing() == set_up).then_some(())
        });
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        // It watches the tunnels, and cannot tell others of it.
        site.wait_for("status to say so", || {
            let said = stdout(&site.splitter(&["status"]));
            assert!(!said.contains("nobody watches"), "{said}");
            said.contains("has written nothing of it").then_some(())
        });
        assert_eq!(daemon.log().matches("health_not_noted").count(), 1);

        daemon.end(Signal::SIGKILL);
        site.json(&["down"]);
        assert_eq!(site.routing(), before);
        assert!(!path.join("test/state.json").exists());
    });
}

#[test]
fn everything_that_others_change_is_restored_and_counted() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let set_up = site.routing();
        let border = site.border();
        let changes = [
            "ip rule del priority 1602 iif lan0",
            "ip route del default table 10402",
            "ip route flush table 10401",
        ];
        for (number, change) in (1_u32..).zip(changes) {
            border.run(change).expect("it is there");
            within(MENDED, "it to be restored", || {
                (site.routing() == set_up && reconciliations(site) >= f64::from(number))
                    .then_some(())
            });
        }
        // Without its pin nothing holds a program on an interface: flows start again, which is
        // reported and counted.
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        std::fs::remove_dir_all(site.bpffs().join("splitter")).expect("it is there");
        within(2 * MENDED, "the programs to be back", || {
            (site.xdp_mode("lan0").is_some() && reconciliations(site) >= 4.0).then_some(())
        });
        assert!(
            daemon.log().contains("+ load the kernel programs"),
            "{}",
            daemon.log()
        );
        connection.send(LONG_BYTES);
        let flow = site.flow_from(connection.port());
        assert_eq!(flow["class"], "long");
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn tunnel_that_goes_down_and_up_a_hundred_times_leaves_nothing_out_of_place() {
    on_site(|site| {
        let before = site.json(&["plan"]);
        let daemon = site.run();
        let open = daemon.descriptors();
        let border = site.border();
        let mut connection = Connection::open(&site.topology);
        for round in 0..100 {
            border.run("ip link set tun1 down").expect("it is there");
            border.run("ip link set tun1 up").expect("it is there");
            if site.topology.borders[0].gateways_ipv6.is_some() {
                let address = "ip address replace fd00:9:1::1/64 dev tun1 nodad";
                border.run(address).expect("it is there");
            }
            if round % 10 == 0 {
                connection.send(1_000);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        within(2 * MENDED, "the daemon to be ready again", || {
            let ready = site.get("/ready").expect("it answers").0 == 200;
            (ready && site.json(&["plan"])["changed"] == false).then_some(())
        });
        connection.send(LONG_BYTES);
        assert!(daemon.is_running(), "{}", daemon.log());
        // What the kernel had removed was restored, or the class had left it to the other tunnel.
        assert!(
            reconciliations(site) + moves(site) > 0.0,
            "{}",
            daemon.log()
        );
        daemon.wait_for_descriptors(open + 2);
        assert!(daemon.end(Signal::SIGTERM).success());
        assert_eq!(site.json(&["plan"]), before);
    });
}

/// In a time namespace the agent's own clock differs from the kernel's by days.
#[test]
fn clock_of_a_time_namespace_does_not_make_flows_idle() {
    require!(Program("unshare"), File("/proc/self/timens_offsets"));
    on_site(|site| {
        let before = site.routing();
        let mut command = site.border().command("unshare");
        command
            .args(["--time", "--monotonic=864000", "--boottime=864000"])
            .args(["--fork", "--kill-child", site::BINARY, "--config"])
            .arg(site.config())
            .arg("run");
        let daemon = Daemon::start(command, &site.path("log"));
        site.wait_for("the daemon to be ready", || match site.get("/ready") {
            Ok((200, _)) => Some(()),
            _ => {
                assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
                None
            }
        });
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        std::thread::sleep(SWEPT);
        let known = site.flow_from(connection.port());
        assert_eq!(known["class"], "long");
        let (_, metrics) = site.get("/metrics").expect("it answers");
        // The other direction comes by a tunnel, where nothing is split.
        assert!(
            metrics.contains("splitter_flows{class=\"long\"} 1\n"),
            "{metrics}"
        );
        daemon.end(Signal::SIGKILL);
        site.wait_for("the lock to be free", || {
            site.splitter(&["down"]).status.success().then_some(())
        });
        site.assert_clean(&before);
    });
}

fn reconciliations(site: &Site) -> f64 {
    site.metric("splitter_reconciliations_total ")
}

/// How often the long class went to the short tunnel.
fn moves(site: &Site) -> f64 {
    let labels = r#"{class="long",tunnel="short",site="default"} "#;
    site.metric(&format!("splitter_class_moves_total{labels}"))
}
