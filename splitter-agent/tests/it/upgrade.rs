//! An agent after one of another version, whose maps are laid out in another way.

use crate::support::site;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use aya::Ebpf;
use aya::programs::Xdp;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, on_site, stderr};
use splitter_policy::table::{TABLE_VERSION, UNSTATED_TABLE_VERSION};

const NATIVE: Option<u64> = Some(1);
const YARDSTICK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/bpf/yardstick.o");
/// Over any threshold.
const LONG_BYTES: usize = 200_000;

#[test]
fn programs_and_maps_of_another_version_are_replaced_without_a_gap() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let old = pretend_to_be_an_older_version(site);
        let old_id = program_id(site);
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);

        let plan = site.json(&["plan"]);
        assert_eq!(plan["plan"]["program"], "replace", "{plan}");
        assert_eq!(program_id(site), old_id);

        let is_over = AtomicBool::new(false);
        let daemon = std::thread::scope(|scope| {
            // Detached and attached again, there would be moments without.
            let watching = scope.spawn(|| {
                let mut looks = 0;
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(site.xdp_mode("lan0"), NATIVE);
                    looks += 1;
                }
                looks
            });
            let daemon = site.run();
            is_over.store(true, Ordering::Relaxed);
            assert!(watching.join().expect("always attached") > 3);
            daemon
        });
        drop(old);
        assert_ne!(program_id(site), old_id);
        connection.send(LONG_BYTES);

        let status = site.json(&["status"]);
        assert_eq!(
            (&status["in_place"], &status["owner"]),
            (&true.into(), &"up".into())
        );
        assert_eq!(status["attached"].as_array().map(Vec::len), Some(2));
        assert_eq!(status["flows"]["became_long"], 1, "{status}");
        assert!(daemon.end(Signal::SIGTERM).success());

        // The next one has nothing to replace.
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn earlier_programs_stay_when_the_new_ones_cannot_be_put_in_their_place() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let old = pretend_to_be_an_older_version(site);
        let old_id = program_id(site);
        // Something that is no link, which comes after all that are.
        let link = site.bpffs().join("splitter/test/links/zzz");
        let map = site.bpffs().join("splitter/test/maps/COUNTERS");
        std::fs::hard_link(map, &link).expect("one more pin");

        let refused = site.splitter(&["up"]);
        assert!(!refused.status.success(), "{refused:?}");
        assert_eq!(program_id(site), old_id);
        let state = std::fs::read_to_string(site.path("run/test/state.json")).expect("it is there");
        assert!(state.contains(OTHER_DIGEST), "{state}");

        std::fs::remove_file(&link).expect("it was made above");
        assert_eq!(site.json(&["up"])["plan"]["program"], "replace");
        assert_ne!(program_id(site), old_id);
        // It holds the links, too.
        drop(old);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

/// Old marks under old rules: neither new rules under old programs, nor old rules under new ones.
#[test]
fn earlier_programs_are_restored_with_their_flows_when_bringing_up_fails_after_them() {
    for steering in ["dscp", "mark", "redirect"] {
        on_site(|site| restored_with_their_flows(site, steering));
    }
}

fn restored_with_their_flows(site: &Site, steering: &str) {
    let mode = format!("[steering]\nmode = '{steering}'\n");
    site.configure(&mode);
    let before = site.routing();
    site.json(&["up"]);
    let up = site.routing();
    let mut connection = Connection::open(&site.topology);
    connection.send(LONG_BYTES);
    let known = packets(site, &connection);
    assert!(known > 100, "{known}");

    // Of another build, with other marks, priorities and shares; and then packets have no way.
    let other = "[log]\npackets = 'debug'\n[marks]\nlong = 10\n[routes]\nrule_priority = 3000\n";
    site.configure(&format!("{mode}{other}"));
    let forwarding = |value| site.border().sysctl("net.ipv4.ip_forward", value);
    forwarding("0").expect("a setting");
    let refused = site.splitter(&["up"]);
    let reported = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{reported}");
    for words in [
        "replaced the kernel programs of another build",
        "restored the earlier kernel programs, with the flows they knew",
        "`sysctl net.ipv4.ip_forward=1`",
    ] {
        assert!(reported.contains(words), "{steering}: {reported}");
    }
    assert_eq!(site.routing(), up, "{steering}");
    forwarding("1").expect("a setting");
    for left in ["earlier", "next"] {
        assert!(!site.bpffs().join("splitter/test").join(left).exists());
    }

    site.configure(&mode);
    assert_eq!(site.json(&["plan"])["changed"], false, "{steering}");
    connection.send(LONG_BYTES);
    assert!(packets(site, &connection) > known + 100, "{steering}");

    // With a way, the other build takes over, and nothing of this one stays.
    site.configure(&format!("{mode}{other}"));
    assert_eq!(site.json(&["up"])["plan"]["program"], "replace");
    assert!(!site.bpffs().join("splitter/test/earlier").exists());
    connection.send(LONG_BYTES);
    site.json(&["down"]);
    site.assert_clean(&before);
}

/// Another log level is another build: its programs go on with the very tables of those before.
#[test]
fn flows_stay_in_their_table_when_its_layout_is_the_same() {
    for steering in ["dscp", "mark", "redirect"] {
        on_site(|site| {
            let mode = format!("[steering]\nmode = '{steering}'\n");
            site.configure(&mode);
            let before = site.routing();
            site.json(&["up"]);
            assert_eq!(
                site.json(&["status"])["flow_table"]["inherited"],
                Value::Null
            );
            let mut connection = Connection::open(&site.topology);
            connection.send(LONG_BYTES);
            let known = packets(site, &connection);

            site.configure(&format!("{mode}[log]\npackets = 'debug'\n"));
            let plan = site.json(&["plan"]);
            assert_eq!(plan["plan"]["flows"]["outcome"], "kept", "{plan}");
            let upgraded = site.splitter(&["up"]);
            assert!(upgraded.status.success(), "{}", stderr(&upgraded));
            assert!(stderr(&upgraded).contains("the flow table stays, with all "));
            assert!(packets(site, &connection) >= known, "{steering}");
            connection.send(LONG_BYTES);
            assert!(packets(site, &connection) > known + 100, "{steering}");
            let status = site.json(&["status"]);
            let inherited = &status["flow_table"]["inherited"];
            assert_eq!(inherited["outcome"], "kept", "{status}");
            assert!(inherited["flows"].as_u64() > Some(0), "{status}");
            assert_eq!(status["flows"]["became_long"], 0, "it was long before");
            site.json(&["down"]);
            site.assert_clean(&before);
        });
    }
}

/// As the book says: the agent is killed, and the one of the new build comes after it.
#[test]
fn flows_survive_an_upgrade_of_an_agent_that_runs() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        let known = packets(site, &connection);
        daemon.end(Signal::SIGKILL);
        // Nobody runs: they are counted all the same.
        connection.send(LONG_BYTES);
        site.configure("[log]\npackets = 'debug'\n");
        let daemon = site.run();
        let words = "the flow table stays, with all ";
        assert!(daemon.log().contains(words), "{}", daemon.log());
        assert!(packets(site, &connection) > known + 100);
        let status = site.json(&["status"]);
        assert_eq!(status["flow_table"]["inherited"]["outcome"], "kept");
        assert_eq!(status["owner"], "run");
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

/// Of another size, or of a build that noted no version of its tables, they are copied.
#[test]
fn flows_are_copied_into_a_table_of_another_layout() {
    for (change, has_note) in [("[flows]\ntable_size = 9000\n", true), ("", false)] {
        on_site(|site| {
            let before = site.routing();
            site.json(&["up"]);
            let mut connection = Connection::open(&site.topology);
            connection.send(LONG_BYTES);
            let known = packets(site, &connection);

            if !has_note {
                std::fs::remove_file(note(site)).expect("it was noted");
                forget_to_count_egress(site);
            }
            site.configure(change);
            say_that_another_build_runs(site);
            let plan = site.json(&["plan"]);
            assert_eq!(plan["plan"]["flows"]["outcome"], "copied", "{plan}");
            let upgraded = site.splitter(&["up"]);
            assert!(upgraded.status.success(), "{}", stderr(&upgraded));
            let reported = stderr(&upgraded);
            let version = if has_note {
                TABLE_VERSION
            } else {
                UNSTATED_TABLE_VERSION
            };
            let words = format!("flows were copied from a flow table of version {version}");
            assert!(reported.contains(&words), "{reported}");
            assert!(!reported.contains("cannot count"), "{reported}");
            assert_eq!(packets(site, &connection), known);
            connection.send(LONG_BYTES);
            assert!(packets(site, &connection) > known + 100);
            let status = site.json(&["status"]);
            let inherited = &status["flow_table"]["inherited"];
            assert_eq!(inherited["outcome"], "copied", "{status}");
            assert_eq!(inherited["left_out"], 0, "{status}");
            assert_eq!(status["flows"]["became_long"], 0, "it was long before");
            site.json(&["down"]);
            site.assert_clean(&before);
        });
    }
}

#[test]
fn flows_of_a_layout_that_is_not_known_are_forgotten_and_that_is_said() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);

        let note = note(site);
        let noted = std::fs::read_link(&note).expect("it is noted");
        let later = noted.to_str().expect("text").replacen(
            &format!(":{TABLE_VERSION}:"),
            ":4000000000:",
            1,
        );
        std::fs::remove_file(&note).expect("it is there");
        std::os::unix::fs::symlink(later, &note).expect("a link");
        say_that_another_build_runs(site);
        let plan = site.json(&["plan"]);
        assert_eq!(plan["plan"]["flows"]["outcome"], "forgotten", "{plan}");
        let upgraded = site.splitter(&["up"]);
        assert!(upgraded.status.success(), "{}", stderr(&upgraded));
        let reported = stderr(&upgraded);
        let words = "all flows start again as short: the table before is of version 4000000000";
        assert!(reported.contains(words), "{reported}");
        let status = site.json(&["status"]);
        let inherited = &status["flow_table"]["inherited"];
        assert_eq!(inherited["outcome"], "forgotten", "{status}");
        connection.send(LONG_BYTES);
        let status = site.json(&["status"]);
        assert_eq!(status["flows"]["became_long"], 1, "{status}");
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

/// What says how flows lie in the pinned tables.
fn note(site: &Site) -> PathBuf {
    site.bpffs().join("splitter/test/maps/tables")
}

/// Leaves the pins that an agent had which counted nothing at the tunnels' egress.
fn forget_to_count_egress(site: &Site) {
    let pins = site.bpffs().join("splitter/test");
    std::fs::remove_dir_all(pins.join("egress_links")).expect("it counts there");
    std::fs::remove_file(pins.join("count_egress")).expect("it is pinned");
}

/// How many packets of a connection the programs have counted towards the other site.
fn packets(site: &Site, connection: &Connection) -> u64 {
    let flows = site.json(&["flows"]);
    let mut flows = flows["flows"].as_array().expect("a list").iter();
    let is_it = |flow: &&Value| flow["source_port"] == connection.port();
    let flow = flows.find(is_it).expect("it is known");
    assert_eq!(flow["class"], "long", "{flow}");
    flow["packets"].as_u64().expect("a count")
}

/// An agent that is killed between the links and the pins leaves a program on the interfaces that is
/// not yet the pinned one.
#[test]
fn program_of_an_agent_that_was_killed_while_it_replaced_another_is_known_as_ours() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let pinned = site.bpffs().join("splitter/test/split");
        let aside = site.path("bpf/aside");
        std::fs::rename(&pinned, &aside).expect("it is there");
        std::fs::hard_link(&aside, &pinned).expect("one more pin");
        let old = pretend_to_be_an_older_version(site);
        let next = site.bpffs().join("splitter/test/next");
        std::fs::create_dir(&next).expect("a directory");
        std::fs::rename(&pinned, next.join("split")).expect("it is there");
        std::fs::rename(&aside, &pinned).expect("it was put there");
        drop(old);

        assert_eq!(site.json(&["plan"])["plan"]["program"], "replace");
        let mut connection = Connection::open(&site.topology);
        site.json(&["up"]);
        assert!(!next.exists());
        connection.send(LONG_BYTES);
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

const OTHER_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Puts a program with an LRU hash, and with settings of another size, in the place of the agent's.
fn pretend_to_be_an_older_version(site: &Site) -> Ebpf {
    let object = std::fs::read(YARDSTICK).expect("it is committed");
    let parsed = aya_obj::Object::parse(&object).expect("it is whole");
    let mut loader = aya::EbpfLoader::new();
    for name in parsed.maps.keys() {
        loader.map_max_entries(name, 1);
    }
    let mut old = loader.load(&object).expect("it loads");
    let pins = site.bpffs().join("splitter/test");
    for (name, as_name) in [
        ("LRU_V4", "FLOWS_V4"),
        ("LRU_V6", "FLOWS_V6"),
        ("TUNNELS", "SETTINGS"),
    ] {
        let map = old.map_mut(name).expect("it is in the object");
        map.pin(replaced(&pins.join("maps").join(as_name)))
            .expect("the pin is free");
    }
    let program: &mut Xdp = old
        .program_mut("lru_hash_ktime")
        .and_then(|program| program.try_into().ok())
        .expect("it is in the object");
    program.load().expect("the verifier accepts it");
    for device in ["lan0", "gen0"] {
        let pinned = PinnedLink::from_pin(pins.join("links").join(device)).expect("it is attached");
        let link = XdpLink::try_from(FdLink::from(pinned)).expect("it is one of XDP");
        program.attach_to_link(link).expect("links can be moved");
    }
    program
        .pin(replaced(&pins.join("split")))
        .expect("the pin is free");

    say_that_another_build_runs(site);
    old
}

fn say_that_another_build_runs(site: &Site) {
    let file = site.path("run/test/state.json");
    let text = std::fs::read(&file).expect("it is up");
    let mut state: Value = serde_json::from_slice(&text).expect("JSON");
    state["object"] = OTHER_DIGEST.into();
    std::fs::write(&file, state.to_string()).expect("a file");
}

/// The path, where nothing is any more.
fn replaced(path: &Path) -> &Path {
    std::fs::remove_file(path).expect("something was pinned there");
    path
}

fn program_id(site: &Site) -> u64 {
    let shown = site
        .border()
        .run("ip -j link show lan0")
        .expect("it exists");
    let links: Value = serde_json::from_str(&shown).expect("JSON");
    links[0]["xdp"]["prog"]["id"]
        .as_u64()
        .expect("one is attached")
}
