//! What it takes to run the splitter, and what of it the daemon keeps.

use crate::support::daemon;
use crate::support::site;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::Duration;

use daemon::Daemon;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use site::{Connection, Site, on_site, output, stderr, within};

/// An ordinary user.
const NOBODY: u32 = 65_534;
/// Names as `setpriv` spells them, and the numbers of the kernel.
const NEEDED: [(&str, u32); 3] = [("net_admin", 12), ("perfmon", 38), ("bpf", 39)];
/// How long it may take to notice and mend: the agent looks every second.
const MENDED: Duration = Duration::from_secs(10);

#[test]
fn three_capabilities_are_enough_for_an_ordinary_user() {
    require!(Program("setpriv"));
    on_site(|site| {
        hand_over(site);
        let before = site.routing();
        let all = NEEDED.map(|(name, _)| name);
        for command in ["doctor", "plan", "up", "status", "flows", "up", "down"] {
            let output = output(as_nobody(site, &all, &[command]));
            assert!(output.status.success(), "{command}: {output:?}");
        }
        site.assert_clean(&before);

        let daemon = Daemon::start(as_nobody(site, &all, &["run"]), &site.path("log"));
        wait_until_ready(site, &daemon);
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        assert_eq!(site.json(&["status"])["flows"]["became_long"], 1);
        assert_keeps_only_what_is_needed(&daemon);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn missing_capability_is_named_with_ways_to_give_it() {
    require!(Program("setpriv"));
    on_site(|site| {
        hand_over(site);
        let before = site.routing();
        for (missing, _) in NEEDED {
            let others: Vec<_> = NEEDED
                .map(|(name, _)| name)
                .into_iter()
                .filter(|name| *name != missing)
                .collect();
            for command in ["run", "up", "down", "tap"] {
                let arguments: &[&str] = match command {
                    "tap" => &["tap", "lan0"],
                    other => &[other],
                };
                let output = output(as_nobody(site, &others, arguments));
                let reported = stderr(&output);
                assert_eq!(output.status.code(), Some(4), "{command}: {reported}");
                let name = format!("not permitted: CAP_{} missing", missing.to_uppercase());
                for word in [&name, "setcap cap_bpf", "AmbientCapabilities=CAP_BPF"] {
                    assert!(
                        reported.contains(word),
                        "{command}: no {word:?} in {reported}"
                    );
                }
            }
        }
        site.assert_clean(&before);
    });
}

#[test]
fn root_without_capabilities_learns_which_to_give_back() {
    require!(Program("setpriv"));
    on_site(|site| {
        let mut command = site.border().command("setpriv");
        // The other one stands for it.
        let taken = "-bpf,-sys_admin";
        command.args([
            format!("--inh-caps={taken}"),
            format!("--bounding-set={taken}"),
        ]);
        let output = output(splitter(command, site, &["up"]));
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let reported = stderr(&output);
        assert!(reported.contains("CAP_BPF"), "{reported}");
        assert!(reported.contains("--cap-add BPF"), "{reported}");
    });
}

#[test]
fn daemon_of_root_gives_up_what_it_does_not_need_and_still_reconciles() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let set_up = site.routing();
        assert_keeps_only_what_is_needed(&daemon);

        let rule = "ip rule del priority 1601 iif lan0";
        site.border().run(rule).expect("it is there");
        // It goes on for a moment after that.
        within(MENDED, "the rule to be back", || {
            (site.routing() == set_up && reconciliations(site) >= 1.0).then_some(())
        });
        // Loading again takes most rights.
        std::fs::remove_dir_all(site.bpffs().join("splitter")).expect("it is there");
        within(2 * MENDED, "the programs to be back", || {
            (site.xdp_mode("lan0").is_some() && reconciliations(site) >= 2.0).then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

/// Directories of another user than root take a right of root's, which is kept then.
#[test]
fn daemon_of_root_adopts_what_an_ordinary_user_brought_up() {
    require!(Program("setpriv"));
    on_site(|site| {
        hand_over(site);
        let before = site.routing();
        let all = NEEDED.map(|(name, _)| name);
        let up = output(as_nobody(site, &all, &["up"]));
        assert!(up.status.success(), "{up:?}");
        let daemon = site.run();
        assert!(
            daemon.log().contains("CAP_DAC_OVERRIDE"),
            "{}",
            daemon.log()
        );
        assert!(daemon.end(Signal::SIGTERM).success());
        let down = output(as_nobody(site, &all, &["down"]));
        assert!(down.status.success(), "{down:?}");
        site.assert_clean(&before);
    });
}

fn reconciliations(site: &Site) -> f64 {
    site.metric("splitter_reconciliations_total ")
}

/// Makes the directories that an agent writes to those of an ordinary user.
fn hand_over(site: &Site) {
    for name in ["bpf", "run"] {
        chown(site.path(name), Some(NOBODY), Some(NOBODY)).expect("we are root");
    }
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(site.path(""), open).expect("it is ours");
    // A binary that lies where nobody may look could not be started.
    std::fs::copy(site::BINARY, site.path("splitter")).expect("there is room");
}

/// The command as an ordinary user with no rights but these, as a service would run it.
fn as_nobody(site: &Site, capabilities: &[&str], arguments: &[&str]) -> Command {
    let list = |all: &str| {
        let given: Vec<_> = capabilities.iter().map(|name| format!("+{name}")).collect();
        format!("{all}-all,{}", given.join(","))
    };
    let mut command = site.border().command("setpriv");
    command
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
        .args(["--clear-groups", "--no-new-privs"])
        .arg(list("--inh-caps="))
        .arg(list("--ambient-caps="))
        .arg(list("--bounding-set="));
    splitter(command, site, arguments)
}

fn splitter(mut wrapper: Command, site: &Site, arguments: &[&str]) -> Command {
    let copy = site.path("splitter");
    let binary = if copy.exists() {
        copy
    } else {
        site::BINARY.into()
    };
    wrapper
        .arg(binary)
        .arg("--config")
        .arg(site.config())
        .args(arguments);
    wrapper
}

fn wait_until_ready(site: &Site, daemon: &Daemon) {
    site.wait_for("the daemon to be ready", || match site.get("/ready") {
        Ok((200, _)) => Some(()),
        _ => {
            assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
            None
        }
    });
}

/// Each thread of it, whenever it was started; those that speak with the kernel have begun with less.
fn assert_keeps_only_what_is_needed(daemon: &Daemon) {
    let needed = NEEDED.iter().fold(0_u64, |mask, (_, bit)| mask | 1 << bit);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).expect("it runs");
    let net_admin = 1 << 12;
    let mut threads = [0; 2];
    for task in tasks {
        let path = task.expect("it runs").path().join("status");
        let read = || std::fs::read_to_string(&path).ok();
        // One that has just begun may not have given up anything yet, or not have a name; one that has ended is not there.
        let is_young = |status: &String| !status.contains(&format!("CapPrm:\t{needed:016x}"));
        let Some(status) = read().filter(|it| !is_young(it)).or_else(|| {
            std::thread::sleep(Duration::from_millis(300));
            read()
        }) else {
            continue;
        };
        let field = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            value.expect("it is reported").trim().to_owned()
        };
        let mask = |name: &str| u64::from_str_radix(&field(name), 16).expect("a number");
        let speaks = field("Name:") == "netlink";
        let own = if speaks { net_admin } else { needed };
        assert_eq!(["CapEff:", "CapPrm:"].map(mask), [own, own], "{status}");
        // Who may not change it has no more than it began with.
        let bounding = mask("CapBnd:");
        assert!(bounding == own || speaks && bounding == needed, "{status}");
        assert_eq!(["CapInh:", "CapAmb:"].map(mask), [0, 0], "{status}");
        assert_eq!(field("NoNewPrivs:"), "1");
        threads[usize::from(speaks)] += 1;
    }
    assert!(threads.iter().all(|it| *it > 0), "{threads:?}");
}
