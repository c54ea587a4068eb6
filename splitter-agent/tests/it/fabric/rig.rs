//! Two leaves and two spines, in namespaces.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Mutex;

use flow_testbed::namespace::Namespace;
use serde_json::Value as Json;

use super::{DSCP, RATE_MBIT};
use crate::support::site::{BINARY, mount_bpffs};

/// Two leaves with a host each, and two spines.
pub(super) struct Rig {
    pub(super) hosts: [Namespace; 2],
    pub(super) leaves: [Namespace; 2],
    pub(super) spines: [Namespace; 2],
    pub(super) directory: tempfile::TempDir,
    /// What stands in the section of a router besides, by its name.
    besides: Mutex<BTreeMap<String, String>>,
}

impl Rig {
    pub(super) fn new() -> Self {
        let make = |name: &str| Namespace::new(name).expect("root");
        let rig = Self {
            hosts: ["host0", "host1"].map(make),
            leaves: ["leaf0", "leaf1"].map(make),
            spines: ["spine0", "spine1"].map(make),
            directory: tempfile::tempdir().expect("a directory"),
            besides: Mutex::default(),
        };
        std::fs::create_dir(rig.bpffs()).expect("it is new");
        mount_bpffs(&rig.bpffs());
        for router in rig.leaves.iter().chain(&rig.spines) {
            for (key, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv6.conf.all.forwarding", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
            ] {
                router.sysctl(key, value).expect("it is known");
            }
        }
        // Every error is told.
        for namespace in rig.hosts.iter().chain(rig.routers()) {
            for (key, value) in [
                ("net.ipv4.icmp_ratemask", "0"),
                ("net.ipv6.icmp.ratelimit", "0"),
                // None of the types of errors.
                ("net.ipv6.icmp.ratemask", "0"),
                // Neighbours are asked for from the begin on.
                ("net.ipv6.conf.all.accept_dad", "0"),
                ("net.ipv6.conf.default.accept_dad", "0"),
            ] {
                namespace.sysctl(key, value).expect("it is known");
            }
        }
        for (number, (host, leaf)) in rig.hosts.iter().zip(&rig.leaves).enumerate() {
            host.connect("eth0", leaf, "host0").expect("root");
            let site = number + 1;
            let at_host =
                format!("10.{site}.0.2/24 10.{site}.0.3/24 fd00:{site}::2/64 fd00:{site}::3/64");
            let at_leaf = format!("10.{site}.0.1/24 fd00:{site}::1/64");
            set_up(host, "eth0", &at_host);
            set_up(leaf, "host0", &at_leaf);
            run(host, &format!("ip route add default via 10.{site}.0.1"));
            run(host, &format!("ip -6 route add default via fd00:{site}::1"));
            for (index, spine) in rig.spines.iter().enumerate() {
                let net = 100 + index;
                let (up, down) = (format!("up{index}"), format!("leaf{number}"));
                leaf.connect(&up, spine, &down).expect("root");
                let [near, far] = [1, 2]
                    .map(|it| format!("10.{net}.{number}.{it}/24 fd00:{net}:{number}::{it}/64"));
                set_up(leaf, &up, &near);
                set_up(spine, &down, &far);
                run(
                    spine,
                    &format!("ip route add 10.{site}.0.0/24 via 10.{net}.{number}.1"),
                );
                run(
                    spine,
                    &format!("ip -6 route add fd00:{site}::/64 via fd00:{net}:{number}::1"),
                );
                // Of the other host each address by another spine.
                let (other, last) = (2 - number, 2 + index);
                run(
                    leaf,
                    &format!("ip route add 10.{other}.0.{last}/32 via 10.{net}.{number}.2"),
                );
                let hop = format!("fd00:{net}:{number}::2");
                run(
                    leaf,
                    &format!("ip -6 route add fd00:{other}::{last}/128 via {hop}"),
                );
            }
            run(
                leaf,
                &format!("ip -6 route add default via fd00:100:{number}::2"),
            );
        }
        rig
    }

    pub(super) fn bpffs(&self) -> std::path::PathBuf {
        self.directory.path().join("bpf")
    }

    pub(super) fn routers(&self) -> impl Iterator<Item = &Namespace> {
        self.leaves.iter().chain(&self.spines)
    }

    /// The file of a router, by what it is.
    pub(super) fn file(&self, router: &Namespace) -> std::path::PathBuf {
        let name = router.name();
        let (bpffs, runtime) = (self.bpffs(), self.directory.path().join("run"));
        let mut text = format!("name = '{name}'\nbpffs = {bpffs:?}\nruntime_dir = {runtime:?}\n");
        let besides = self.besides.lock().expect("no panic").get(name).cloned();
        let besides = besides.unwrap_or_default();
        if name.starts_with("leaf") {
            text += &format!("[fabric]\nrole = 'leaf'\ndscp = {DSCP}\n{besides}");
            for up in ["up0", "up1"] {
                text += &format!("[[fabric.ports]]\ndevice = '{up}'\n");
            }
            for number in 0..2 {
                let site = number + 1;
                text += &format!(
                    "[[fabric.leaves]]\nnumber = {number}\nprefixes = ['10.{site}.0.0/24', 'fd00:{site}::/64']\n"
                );
            }
        } else {
            text += &format!("[fabric]\nrole = 'spine'\ndscp = {DSCP}\n{besides}");
            for leaf in ["leaf0", "leaf1"] {
                text += &format!("[[fabric.ports]]\ndevice = '{leaf}'\nrate_mbit = {RATE_MBIT}\n");
            }
        }
        let path = self.directory.path().join(format!("{name}.toml"));
        // An agent may read it at this moment.
        if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            std::fs::write(&path, text).expect("can be written");
        }
        path
    }

    /// Has other lines stand in the section of a router from now on.
    pub(super) fn set(&self, router: &Namespace, lines: &str) {
        let mut besides = self.besides.lock().expect("no panic");
        besides.insert(router.name().to_owned(), lines.to_owned());
    }

    /// A subcommand on a router, to be run.
    pub(super) fn command(&self, router: &Namespace, words: &str) -> Command {
        let mut command = router.command(BINARY);
        command.arg("-c").arg(self.file(router));
        command.args(["--json", "fabric"]).args(words.split(' '));
        command
    }

    /// Runs a subcommand on a router to its end.
    pub(super) fn output(&self, router: &Namespace, words: &str) -> Output {
        self.command(router, words).output().expect("it is built")
    }

    /// Runs a subcommand on a router; what it printed.
    pub(super) fn fabric(&self, router: &Namespace, words: &str) -> String {
        let output = self.output(router, words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {words}: {stderr}",
            router.name()
        );
        String::from_utf8(output.stdout).expect("JSON")
    }

    pub(super) fn status(&self, router: &Namespace) -> Json {
        serde_json::from_str(&self.fabric(router, "status")).expect("JSON")
    }

    /// How often the router has done a step.
    pub(super) fn done(&self, router: &Namespace, step: &str) -> u64 {
        let count = self.status(router)["acks"][step].as_u64();
        count.expect("a number")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What is pinned goes with the mount.
        let _ = nix::mount::umount(&self.bpffs());
    }
}

pub(super) fn run(namespace: &Namespace, line: &str) {
    namespace.run(line).expect("root");
}

pub(super) fn set_up(namespace: &Namespace, device: &str, addresses: &str) {
    for address in addresses.split(' ') {
        let nodad = if address.contains("::") { "nodad" } else { "" };
        run(
            namespace,
            &format!("ip addr add {address} dev {device} {nodad}"),
        );
    }
    run(namespace, &format!("ip link set {device} up"));
}
