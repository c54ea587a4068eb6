//! The splitter next to XDP programs of others, with the real binary: they are named, the advice that
//! is given is followed, and they are there afterwards.

use crate::support::leaving;
use crate::support::site;
use crate::support::stranger;
use std::path::Path;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::require::skip;
use flow_testbed::topology::{GENERATOR, LAN};
use leaving::leaves_by;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, mount_bpffs, on_site, stderr};
use stranger::pin_stranger;

/// Some ten packets, of which none makes a flow long.
const FEW_BYTES: usize = 10_000;
/// Some three hundred.
const MANY_BYTES: usize = 400_000;
/// Longer than the longest wait for a hand-over.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(300);
/// What `up` and `doctor` advise.
const BESIDE: &str = "[steering]\nmode = \"mark\"\n";
/// Where libxdp pins what it runs.
const SYSTEM_BPFFS: &str = "/sys/fs/bpf";

#[test]
fn splitter_runs_next_to_a_dispatcher_as_it_advises() {
    on_site(|site| {
        let border = site.border();
        let pin = site.path("bpf/stranger");
        pin_stranger("xdp_dispatcher", &pin);
        for device in [LAN, GENERATOR] {
            let line = format!("ip link set dev {device} xdpdrv pinned {}", pin.display());
            border.run(&line).expect("nothing else is attached");
        }
        let before = site.routing();
        let id = program_id(site, LAN);

        let named = format!("`xdp_dispatcher`, number {id}, by which libxdp or bpfman runs ");
        for command in ["run", "up", "plan"] {
            let output = site.splitter(&[command]);
            let reported = stderr(&output);
            assert_eq!(output.status.code(), Some(5), "{command}: {reported}");
            let words = format!("`{LAN}` has another XDP program attached already: {named}");
            let advice = "write `[steering]` and below it `mode = \"mark\"` into the configuration";
            let unload = format!("`xdp-loader unload {LAN} --all`");
            for part in [&words, advice, &unload] {
                assert!(reported.contains(part), "{command}: {reported}");
            }
            assert_eq!(site.routing(), before, "{command}");
        }
        let (status, detail, remedy) = xdp_check(site, LAN);
        assert_eq!(status, "fail", "{detail}");
        assert!(detail.contains(&named), "{detail}");
        assert!(remedy.contains("`mode = \"mark\"`"), "{remedy}");

        splits_next_to_what_is_there(site, &before);
        assert_eq!(program_id(site, LAN), id);
    });
}

#[test]
fn splitter_runs_next_to_what_xdp_filter_has_attached() {
    require!(Program("xdp-filter"));
    on_site(|site| {
        let filter = Filter::load(site);
        let before = site.routing();
        let output = site.splitter(&["up"]);
        let reported = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{reported}");
        assert!(reported.contains("`mode = \"mark\"`"), "{reported}");
        splits_next_to_what_is_there(site, &before);
        drop(filter);
        // Then there is room for the program that marks by DSCP.
        site.configure("");
        site.wait_for("the interface to be free", || {
            site.splitter(&["up"]).status.success().then_some(())
        });
        assert!(site.splitter(&["down"]).status.success());
    });
}

#[test]
fn programs_that_a_dispatcher_of_libxdp_runs_are_named() {
    require!(Program("xdp-filter"));
    on_site(|site| {
        let _filter = Filter::load(site);
        let reported = stderr(&site.splitter(&["up"]));
        if !reported.contains("`xdp_dispatcher`") {
            let reason = "lacks the replacing of functions of BPF programs (BPF_PROG_TYPE_EXT), so \
                          that libxdp attaches no dispatcher; use a kernel that has it";
            return skip(
                "foreign_xdp::programs_that_a_dispatcher_of_libxdp_runs_are_named",
                reason,
            );
        }
        assert!(reported.contains("`xdpfilt_"), "{reported}");
    });
}

/// `xdp-filter`, which lets all pass here, on the LAN interface until this is dropped. What it pins
/// lies in a BPF file system that only this test sees.
struct Filter<'s>(&'s Site);

impl<'s> Filter<'s> {
    fn load(site: &'s Site) -> Self {
        mount_bpffs(Path::new(SYSTEM_BPFFS));
        let filter = Self(site);
        let line = format!("xdp-filter load --mode native {LAN}");
        site.border().run(&line).expect("nothing else is attached");
        filter
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        let line = format!("xdp-filter unload {LAN}");
        if let Err(error) = self.0.border().run(&line) {
            eprintln!("it goes with its namespace: {error}");
        }
        let _ = umount2(Path::new(SYSTEM_BPFFS), MntFlags::MNT_DETACH);
    }
}

/// Follows the advice: flows are split, and nothing of what was there is changed.
fn splits_next_to_what_is_there(site: &Site, before: &str) {
    site.configure(BESIDE);
    let (status, detail, _) = xdp_check(site, LAN);
    assert_eq!(status, "ok", "{detail}");
    let attached = [LAN, GENERATOR].map(|device| program_id(site, device));
    let there = || [LAN, GENERATOR].map(|device| program_id(site, device)) == attached;

    let daemon = site.run();
    let mut connection = Connection::open(&site.topology);
    leaves_by(site, 0, || connection.send(FEW_BYTES));
    connection.send(MANY_BYTES / 2);
    // After a pause it may change tunnels in any case.
    std::thread::sleep(PAUSE);
    leaves_by(site, 1, || connection.send(MANY_BYTES / 2));
    assert!(there(), "{}", site.routing());
    assert_eq!(site.json(&["status"])["flows"]["became_long"], 1);
    assert!(daemon.end(Signal::SIGTERM).success());
    site.assert_clean(before);

    site.json(&["up"]);
    assert!(there(), "{}", site.routing());
    site.json(&["down"]);
    site.assert_clean(before);
}

/// The number of the XDP program on a device; 0 where there is none.
fn program_id(site: &Site, device: &str) -> u64 {
    let shown = site.border().run(&format!("ip -j link show {device}"));
    let links: Value = serde_json::from_str(&shown.expect("it exists")).expect("JSON");
    links[0]["xdp"]["prog"]["id"].as_u64().unwrap_or_default()
}

/// What `doctor` says of XDP on a device: status, detail and remedy.
fn xdp_check(site: &Site, device: &str) -> (String, String, String) {
    let output = site.splitter(&["doctor", "--json"]);
    let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let check = format!("XDP on {device}");
    let mut checks = reported.as_array().expect("checks").iter();
    let found = checks.find(|it| it["check"] == check.as_str());
    let found = found.unwrap_or_else(|| panic!("no {check} in {reported:#}"));
    let word = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (word("status"), word("detail"), word("remedy"))
}
