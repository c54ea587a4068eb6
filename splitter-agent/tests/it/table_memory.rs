//! What the flow tables and all other maps take on a router with little memory.

use std::fs;
use std::path::{Path, PathBuf};

use flow_testbed::require::skip;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::balance::balanced;
use crate::support::daemon::Daemon;
use crate::support::site::{BINARY, Site, on_site, output};
use crate::table::sizes;

/// Of the control group, as such a router has.
const LIMIT: u64 = 128 << 20;

/// Of the memory, as tables may grow by default.
const GROWTH_PERCENT: u64 = 4;

const FLOWS: &str = "[flows]\nthreshold = 40\n";

/// A router of 128 MB: the tables take 1 % of that, and all maps together 5 MB; 7 MB where packets choose
/// among tunnels. With tables that have grown as far as they may, maps take less than 12 MB in any case.
#[test]
fn tables_follow_the_limit_of_a_control_group() {
    on_site(|site| {
        let group = match MemoryGroup::new(LIMIT) {
            Ok(group) => group,
            Err(lacking) => {
                return skip(
                    "it::table_memory::tables_follow_the_limit_of_a_control_group",
                    &lacking,
                );
            }
        };
        site.configure(FLOWS);
        takes_at_most(site, &group, 5_000_000);
        site.configure(&(balanced(site, "tr", false) + FLOWS));
        takes_at_most(site, &group, 7_000_000);
    });
}

fn takes_at_most(site: &Site, group: &MemoryGroup, most: u64) {
    let mut planning = group.command(site, "plan --json");
    planning.current_dir("/");
    let plan = output(planning);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let flows = &plan["plan"]["table_flows"];
    assert_eq!(
        (&flows["ipv4"], &flows["ipv6"]),
        (&13_624.into(), &3_404.into())
    );
    let daemon = Daemon::start(group.command(site, "run"), &site.path("log"));
    site.wait_for("the daemon to be ready", || match site.get("/ready") {
        Ok((200, _)) => Some(()),
        _ => None,
    });
    let now = sizes(site);
    assert_eq!(now["flows"]["ipv4"], 13_624);
    // Nor does a look from outside, with all the memory of the machine, change that.
    assert_eq!(site.json(&["plan"])["changed"], false);
    let maps = maps_bytes(&site.bpffs().join("splitter/test/maps"));
    let agent = anonymous_bytes(daemon.id());
    let tables = now["bytes"].as_u64().expect("a number");
    let grown = maps - tables + LIMIT / 100 * GROWTH_PERCENT;
    println!("maps {maps} bytes, {grown} with grown tables, agent {agent} bytes");
    assert!(maps <= most, "maps {maps}, agent {agent}");
    assert!(grown <= 12_000_000, "maps {grown} with grown tables");
    assert!(daemon.end(Signal::SIGTERM).success());
}

/// What the kernel says that pinned maps take.
fn maps_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("it is up").flatten();
    let maps = entries.filter_map(|entry| aya::maps::MapInfo::from_pin(entry.path()).ok());
    let bytes = maps.map(|map| {
        let opened = map.fd().expect("it is there");
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let info = format!("/proc/self/fdinfo/{}", opened.as_fd().as_raw_fd());
        let info = fs::read_to_string(info).expect("it is open");
        let taken = info.lines().find_map(|it| it.strip_prefix("memlock:"));
        taken
            .expect("it says so")
            .trim()
            .parse::<u64>()
            .expect("a number")
    });
    bytes.sum()
}

/// Of a process: what is not of its file, which an unoptimised one has much of.
fn anonymous_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let taken = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let taken = taken.expect("it says so").trim().trim_end_matches(" kB");
    taken.trim().parse::<u64>().expect("a number") * 1_024
}

/// A control group with a limit, gone with the test.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(limit_bytes: u64) -> Result<Self, String> {
        let name = format!("splitter-test-{}", std::process::id());
        let files = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, file) in files {
            let group = Self(Path::new(root).join(&name));
            let is_made = fs::create_dir(&group.0).is_ok();
            if is_made && fs::write(group.0.join(file), limit_bytes.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err("no control group for memory can be made".to_owned())
    }

    /// The command at the border, as a member of the group.
    fn command(&self, site: &Site, arguments: &str) -> std::process::Command {
        let join = format!(
            "echo $$ > {}/cgroup.procs && exec {BINARY} --config {} {arguments}",
            self.0.display(),
            site.config().display()
        );
        let mut command = site.border().command("sh");
        // As many threads as such a router has cores for.
        command.args(["-c", &join]).env("TOKIO_WORKER_THREADS", "2");
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Empty once its processes have ended.
        let _ = fs::remove_dir(&self.0);
    }
}
