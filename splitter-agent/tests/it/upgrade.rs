//! An agent after one of another version, whose maps are laid out in another way.

use crate::support::site;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use aya::Ebpf;
use aya::programs::Xdp;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, on_site, stderr};

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

    let file = site.path("run/test/state.json");
    let text = std::fs::read(&file).expect("it is up");
    let mut state: Value = serde_json::from_slice(&text).expect("JSON");
    state["object"] = OTHER_DIGEST.into();
    std::fs::write(&file, state.to_string()).expect("a file");
    old
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
