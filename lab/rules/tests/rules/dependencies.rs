//! Rules: arrows point down only, between packages and between the modules of a crate; no product
//! links a proof, and no library a command's dependencies.

use std::collections::BTreeSet;

use workspace_rules::cargo;

use crate::{WORKSPACE, assert_none, crates_of};

/// Packages from the bottom up: each uses only those above it in this list. Proofs come last.
const ORDER: [&str; 53] = [
    // Decisions: no_std, no I/O, no clock.
    "flow-balance",
    "splitter-policy",
    "cloudburst-code",
    // What commands and daemons share.
    "flow-report",
    "flow-recording",
    "flow-telemetry",
    "flow-commands",
    // Messages: datagrams, guards, machine, sockets, command.
    "cloudburst-wire",
    "cloudburst-security",
    "cloudburst-congestion",
    "cloudburst-proto",
    "cloudburst-fec",
    "cloudburst-ffi",
    "cloudburst-cli",
    // The simulator hosts the machine and the policies.
    "flow-engine",
    "flow-tcp",
    "flow-topology",
    "flow-twin",
    "flow-workload",
    "flow-netsim",
    // The border router, from the kernel up.
    "splitter-netlink",
    "splitter-advise",
    "splitter-config",
    "splitter-datapath",
    "splitter-health",
    "splitter-history",
    "splitter-steering",
    "splitter-doctor",
    "splitter-control",
    "splitter-instance",
    "splitter-failover",
    "splitter-verify",
    "splitter-agent",
    // Proofs, which no product links.
    "flow-testbed",
    "paper-machine",
    "splitter-demo",
    "bond",
    "twin",
    "fabric",
    "vm-guest",
    "hostile",
    "instructions",
    "codec-count",
    "live-frames",
    "msgbench",
    "congestion",
    "scale",
    "reproduction",
    "packager",
    "docs-check",
    "benches",
    "workspace-rules",
    "xtask",
];

/// Packages that are proofs or tools without lying under `lab/`.
const TOOLS: [&str; 2] = ["benches", "xtask"];

/// What only commands need; a library that links it makes everybody else compile it.
const OF_COMMANDS: [&str; 7] = [
    "anyhow",
    "clap",
    "clap_complete",
    "clap_mangen",
    "comfy-table",
    "indicatif",
    "ratatui",
];

/// Libraries that applications link, which no command's dependencies may reach.
const LIBRARIES: [&str; 7] = [
    "cloudburst-code",
    "cloudburst-wire",
    "cloudburst-security",
    "cloudburst-congestion",
    "cloudburst-proto",
    "cloudburst-fec",
    "cloudburst-ffi",
];

/// Crates whose modules do not need each other in a circle. Each joins when that holds, and none leaves.
const FINISHED: [&str; 19] = [
    "cloudburst-proto",
    "cloudburst-security",
    "flow-engine",
    "flow-netsim",
    "flow-recording",
    "flow-report",
    "flow-tcp",
    "flow-telemetry",
    "flow-topology",
    "flow-twin",
    "flow-workload",
    "splitter-advise",
    "splitter-agent",
    "splitter-failover",
    "splitter-health",
    "splitter-history",
    "splitter-netlink",
    "splitter-policy",
    "splitter-steering",
];

#[test]
fn packages_use_only_what_stands_below_them() {
    let rank = |name: &str| ORDER.iter().position(|other| *other == name);
    let mut wrong = Vec::new();
    for package in WORKSPACE.packages.values() {
        let Some(own) = rank(&package.name) else {
            wrong.push(format!("{} has no place in the order", package.name));
            continue;
        };
        for used in package.linked() {
            let is_above = rank(used).is_some_and(|used| used > own);
            if is_above {
                wrong.push(format!(
                    "{} uses {used}, which stands above it",
                    package.name
                ));
            }
        }
    }
    assert_none("arrows that point up", &wrong);
}

#[test]
fn proofs_are_never_published() {
    let wrong: Vec<_> = WORKSPACE
        .published()
        .filter(|package| package.is_of_the_lab() || TOOLS.contains(&package.name.as_str()))
        .map(|package| package.name.clone())
        .collect();
    assert_none("proofs without `publish = false`", &wrong);
}

/// All packages that one is compiled with, for this system.
fn tree(package: &str) -> BTreeSet<String> {
    let tree = cargo(&[
        "tree",
        "--offline",
        "--locked",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--package",
        package,
    ]);
    let tree = tree.unwrap();
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn no_product_links_a_proof() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.published() {
        let linked = tree(&package.name);
        let proofs = linked.iter().filter(|name| is_proof(name));
        wrong.extend(proofs.map(|proof| format!("{} links {proof}", package.name)));
    }
    assert_none("products that link proofs", &wrong);
}

fn is_proof(name: &str) -> bool {
    WORKSPACE
        .packages
        .get(name)
        .is_some_and(|package| !package.is_published)
}

#[test]
fn no_library_links_what_commands_need() {
    let mut wrong = Vec::new();
    for library in LIBRARIES {
        if !WORKSPACE.packages.contains_key(library) {
            continue;
        }
        let linked = tree(library);
        let of_commands = OF_COMMANDS.iter().filter(|name| linked.contains(**name));
        wrong.extend(of_commands.map(|name| format!("{library} links {name}")));
    }
    assert_none("libraries with a command's dependencies", &wrong);
}

#[test]
fn modules_of_products_do_not_need_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.published() {
        for krate in crates_of(&package.name) {
            for circle in &krate.circles {
                println!("{}:\n    {}", krate.root, circle.join("\n    "));
                if FINISHED.contains(&package.name.as_str()) {
                    wrong.push(format!("{}: {}", krate.root, circle.join(", ")));
                }
            }
        }
    }
    assert_none("modules that need each other", &wrong);
}
