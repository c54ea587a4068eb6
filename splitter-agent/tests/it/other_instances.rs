//! Instances that share a machine, and would share more: what one has is never touched by another.

use std::process::{Command, Output};

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::{GENERATOR, LAN};

use nix::sys::signal::Signal;

use crate::support::daemon::Daemon;
use crate::support::site::{BINARY, Site, on_site, output, stderr, stdout};

/// A file for another instance: the site's, with these pieces of text replaced.
fn other(site: &Site, changes: &[(impl AsRef<str>, impl AsRef<str>)]) {
    let mut text = std::fs::read_to_string(site.config()).expect("a file");
    for (from, to) in changes {
        let (from, to) = (from.as_ref(), to.as_ref());
        assert!(text.contains(from), "no {from} in {text}");
        text = text.replace(from, to);
    }
    std::fs::write(site.path("other.toml"), text).expect("a file");
}

/// What the file of the near border has to say at the far one.
fn next_hops(site: &Site) -> Vec<(String, String)> {
    let hops = (0..2).flat_map(|index| {
        let [near, far] = [0, 1].map(|it| site.topology.borders[it].gateway_addresses(index));
        near.into_iter().zip(far)
    });
    hops.map(|(near, far)| (format!("\"{near}\""), format!("\"{far}\"")))
        .collect()
}

fn run_other(site: &Site, border: &Namespace, arguments: &[&str]) -> Output {
    let mut command = border.command(BINARY);
    command
        .arg("--config")
        .arg(site.path("other.toml"))
        .args(arguments);
    output(command)
}

/// `up` and `down` of the other instance are refused with these words, and what is there stays.
#[track_caller]
fn assert_refused(site: &Site, border: &Namespace, words: &[&str]) {
    let before = (site.routing(), site.json(&["status"])["attached"].clone());
    for command in ["up", "plan", "run", "down"] {
        let output = run_other(site, border, &[command]);
        let reported = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{command}: {reported}");
        for word in words {
            assert!(
                reported.contains(word),
                "{command}: no {word} in {reported}"
            );
        }
        let after = (site.routing(), site.json(&["status"])["attached"].clone());
        assert_eq!(after, before, "{command}");
    }
    assert_eq!(site.json(&["plan"])["changed"], false);
}

#[test]
fn instances_with_their_states_apart_notice_each_other_by_their_pins() {
    on_site(|site| {
        let before = site.routing();
        let run = site.path("run").display().to_string();
        let state = format!("{run}/test");
        site.configure("[steering]\nmode = 'mark'\n");
        site.json(&["up"]);
        // The same rules and tables under another name, then under the same one.
        let apart = (run.clone(), format!("{run}2"));
        let name = ("\"test\"".to_owned(), "\"other\"".to_owned());
        other(site, &[apart.clone(), name]);
        assert_refused(site, site.border(), &[&state, "`routes.rule_priority`"]);
        other(site, &[apart]);
        assert_refused(site, site.border(), &[&state, "in this network namespace"]);
        site.json(&["down"]);
        site.assert_clean(&before);

        // Then there is room.
        assert!(run_other(site, site.border(), &["up"]).status.success());
        assert!(run_other(site, site.border(), &["down"]).status.success());
        site.assert_clean(&before);
    });
}

#[test]
fn instances_of_two_network_namespaces_do_not_take_each_others_pins() {
    on_site(|site| {
        let far = &site.topology.borders[1].namespace;
        let run = site.path("run").display().to_string();
        site.json(&["up"]);
        other(site, &[(&run, &format!("{run}2"))]);
        assert_refused(site, far, &["in another network namespace", "`name`"]);

        // By another name both are up, and each goes without the other.
        let mut changes = next_hops(site);
        changes.push((run.clone(), format!("{run}2")));
        changes.push(("\"test\"".to_owned(), "\"far\"".to_owned()));
        other(site, &changes);
        let up = run_other(site, far, &["up"]);
        assert!(up.status.success(), "{}", stderr(&up));
        let attached = site.json(&["status"])["attached"].clone();
        assert!(run_other(site, far, &["down"]).status.success());
        assert_eq!(site.json(&["status"])["attached"], attached);
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.json(&["down"]);
    });
}

#[test]
fn pins_whose_devices_have_gone_are_free() {
    on_site(|site| {
        let far = &site.topology.borders[1].namespace;
        let run = site.path("run").display().to_string();
        let mut changes = next_hops(site);
        changes.push((run.clone(), format!("{run}2")));
        other(site, &changes);
        let up = run_other(site, far, &["up"]);
        assert!(up.status.success(), "{}", stderr(&up));
        let reported = site.refused(&["up"], 5);
        assert!(
            reported.contains("in another network namespace"),
            "{reported}"
        );
        for device in [LAN, GENERATOR] {
            far.run(&format!("ip link del {device}"))
                .expect("it is there");
        }
        site.json(&["up"]);
        assert_eq!(site.json(&["status"])["in_place"], true);
        site.json(&["down"]);
    });
}

/// The command in a container on the network namespace of the border: `/run` and the BPF file system are
/// its own, and last as long as it.
fn contained(site: &Site, arguments: &[&str]) -> Command {
    let script = format!(
        "mount -t tmpfs run {} && mount -t bpf bpf {} && exec \"$@\"",
        site.path("run").display(),
        site.bpffs().display()
    );
    let mut command = site.border().command("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", BINARY]);
    command.arg("--config").arg(site.path("other.toml"));
    command.args(arguments);
    command
}

#[test]
fn instance_in_a_container_of_the_same_network_namespace_is_noticed() {
    let other_lan = ("lan = [\"lan0\", \"gen0\"]", "lan = [\"other0\"]");
    for (steering, changes) in [("dscp", &[][..]), ("mark", &[]), ("dscp", &[other_lan])] {
        on_site(|site| {
            site.configure(&format!("[steering]\nmode = '{steering}'\n"));
            other(site, changes);
            site.border()
                .run("ip link add other0 type veth peer name other1")
                .expect("root");
            let before = site.routing();
            site.json(&["up"]);
            let up = (site.routing(), site.json(&["status"])["attached"].clone());
            for command in ["plan", "up", "run", "down"] {
                let output = output(contained(site, &[command]));
                let reported = stderr(&output);
                assert_eq!(output.status.code(), Some(5), "{command}: {reported}");
                for words in ["such as one in a container", "gen0 and lan0"] {
                    assert!(reported.contains(words), "{command}: {reported}");
                }
            }
            let cleared = output(contained(site, &["down", "--all"]));
            let reported = stdout(&cleared);
            assert_eq!(cleared.status.code(), Some(5), "{cleared:?}");
            assert!(
                reported.contains("the instance at gen0 and lan0"),
                "{reported}"
            );
            let after = (site.routing(), site.json(&["status"])["attached"].clone());
            assert_eq!(after, up);
            assert_eq!(site.json(&["plan"])["changed"], false);
            assert!(site.splitter(&["down", "--all"]).status.success());
            site.assert_clean(&before);
        });
    }
}

#[test]
fn what_a_container_has_left_is_taken_away_once_it_is_gone() {
    on_site(|site| {
        let before = site.routing();
        other(site, &[] as &[(&str, &str)]);
        let container = Daemon::start(contained(site, &["run"]), &site.path("other-log"));
        site.wait_for("the container's instance to be up", || {
            assert!(container.is_running(), "{}", container.log());
            (site.get("/ready").ok()?.0 == 200).then_some(())
        });
        let reported = site.refused(&["up"], 5);
        assert!(
            reported.contains("such as one in a container"),
            "{reported}"
        );
        site.refused(&["down", "--all"], 5);
        // Its mounts go with it, and with them what was pinned.
        container.end(Signal::SIGKILL);
        site.wait_for("its programs to go", || {
            let down = site.splitter(&["down", "--all"]);
            down.status.success().then_some(())
        });
        site.assert_clean(&before);
    });
}
