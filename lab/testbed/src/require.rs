//! States what a network test needs, and says so when that is not there.
//!
//! A test that lacks something must not pass silently: [`require!`](crate::require!) prints
//! `SKIPPED <test>: <reason>` and adds that line to the file that the environment variable
//! `FLOW_TEST_SKIPS` names, so that whoever runs the tests can count what did not run.

use std::{
    env, fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

use crate::namespace::{Namespace, NamespaceError};

/// Names the file that skipped tests are written to, a line each.
pub const SKIPS_VARIABLE: &str = "FLOW_TEST_SKIPS";

/// The browser without a screen that tests and experiments run.
pub const BROWSER: &str = "chromium-headless-shell";

/// Something outside of this program that it cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The user id 0, with the right to make network namespaces.
    Root,
    /// A program in `PATH`.
    Program(&'static str),
    /// A file that the kernel shows where it has what the file stands for.
    File(&'static str),
    /// A file system type that the kernel knows.
    FileSystem(&'static str),
    /// A congestion control algorithm that the kernel offers.
    CongestionControl(&'static str),
    /// A queueing discipline, given with its settings as `tc` takes them.
    QueueingDiscipline(&'static str),
    /// What an nftables rule uses, given as the rule.
    NftRule(&'static str),
    /// A kind of device, with its settings as `ip link add try0 type` takes them.
    Device(&'static str),
}

/// A requirement that is not met, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct Lacking {
    /// What is not there.
    pub reason: String,
    /// What would help.
    pub remedy: String,
}

impl Requirement {
    /// Checks whether this is there. Facilities of the kernel are tried out in a namespace of
    /// their own.
    ///
    /// # Errors
    /// What is lacking and the remedy.
    pub fn check(self) -> Result<(), Lacking> {
        let met = match self {
            Self::Root => {
                let tried = Namespace::new("try");
                geteuid().is_root() && !matches!(tried, Err(NamespaceError::Create { .. }))
            }
            Self::Program(name) => find_program(name).is_some(),
            Self::File(path) => Path::new(path).exists(),
            Self::FileSystem(name) => file_has_word("/proc/filesystems", name),
            Self::CongestionControl(name) => {
                file_has_word("/proc/sys/net/ipv4/tcp_available_congestion_control", name)
            }
            Self::QueueingDiscipline(settings) => works(|it| {
                it.run(&format!("tc qdisc add dev lo root {settings}"))
                    .is_ok()
            }),
            Self::Device(settings) => works(|it| {
                // Not on lo, which takes no VLAN.
                let below = "ip link add try1 type veth peer name try2";
                let line = format!("ip link add try0 link try1 type {settings}");
                it.run(below).is_ok() && it.run(&line).is_ok()
            }),
            Self::NftRule(rule) => works(|it| {
                let chain = "type filter hook prerouting priority mangle;";
                let table = format!("table inet try {{\nchain try {{\n{chain}\n{rule}\n}}\n}}\n");
                it.run_with_input("nft -f -", &table).is_ok()
            }),
        };
        if met { Ok(()) } else { Err(self.lacking()) }
    }

    fn lacking(self) -> Lacking {
        let remedy = match self {
            Self::Root => "run it as root (sudo), outside of an unprivileged container".to_owned(),
            Self::Program(name) => {
                format!(
                    "install it ({})",
                    package_of(name).unwrap_or("see `cargo xtask setup`")
                )
            }
            Self::File(_)
            | Self::FileSystem(_)
            | Self::QueueingDiscipline(_)
            | Self::Device(_)
            | Self::NftRule(_) => {
                "use a kernel that has it, built in or as a module that can be loaded".to_owned()
            }
            Self::CongestionControl(name) => format!("load it: modprobe tcp_{name}"),
        };
        Lacking {
            reason: format!("lacks {self}"),
            remedy,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => write!(f, "root and the right to make network namespaces"),
            Self::Program(name) => write!(f, "the program {name}"),
            Self::File(path) => write!(f, "{path}"),
            Self::FileSystem(name) => write!(f, "the {name} file system in the kernel"),
            Self::CongestionControl(name) => write!(f, "TCP congestion control {name}"),
            Self::QueueingDiscipline(settings) => {
                let kind = settings.split_whitespace().next().unwrap_or_default();
                write!(f, "the queueing discipline {kind} in the kernel")
            }
            Self::Device(settings) => {
                let kind = settings.split_whitespace().next().unwrap_or_default();
                write!(f, "devices of the kind {kind} in the kernel")
            }
            Self::NftRule(rule) => write!(f, "what the nftables rule `{rule}` needs"),
        }
    }
}

/// Leaves a test early, and says why, when one of the [requirements](Requirement) is not met.
///
/// ```
/// # use flow_testbed::{require, require::Requirement::{Program, Root}};
/// fn needs_root() {
///     require!(Root, Program("ip"));
///     // ...
/// }
/// fn returns_a_result() -> std::io::Result<()> {
///     require!(Root => Ok(()));
///     // ...
///     Ok(())
/// }
/// ```
#[macro_export]
macro_rules! require {
    ($($requirement:expr),+ $(,)?) => { $crate::require!($($requirement),+ => ()) };
    ($($requirement:expr),+ => $otherwise:expr) => {
        for requirement in [$($requirement),+] {
            if let Err(lacking) = $crate::require::Requirement::check(requirement) {
                fn here() {}
                $crate::require::skip(std::any::type_name_of_val(&here), &lacking.to_string());
                return $otherwise;
            }
        }
    };
}

/// Records that a test did not run. `place` is the path of an item inside the test, which
/// [`require!`](crate::require!) fills in; other harnesses give the test's own path.
pub fn skip(place: &str, reason: &str) {
    let test = place
        .trim_end_matches("::here")
        .trim_end_matches("::{{closure}}");
    let line = format!("SKIPPED {test}: {reason}\n");
    // Not `eprint!`, which the test harness keeps to itself when a test passes.
    let _ = io::stderr().write_all(line.as_bytes());
    let Some(path) = env::var_os(SKIPS_VARIABLE) else {
        return;
    };
    // One write in append mode, so that lines of tests that run at once do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!(
            "cannot record a skipped test in {}: {error}",
            path.display()
        );
    }
}

/// Finds a program that can be run in `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| {
            fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        })
}

fn package_of(program: &str) -> Option<&'static str> {
    match program {
        "ip" | "tc" | "ss" | "nstat" => Some("Debian package iproute2"),
        "nft" => Some("Debian package nftables"),
        "ethtool" => Some("Debian package ethtool"),
        "iperf3" => Some("Debian package iperf3"),
        BROWSER => Some("Debian package chromium-headless-shell"),
        // With what makes virtual environments, which Debian has apart.
        "python3" => Some("Debian package python3-venv"),
        "cc" => Some("Debian package gcc"),
        "c++" => Some("Debian package g++"),
        "valgrind" => Some("Debian package valgrind"),
        "keepalived" => Some("Debian package keepalived"),
        "vtysh" => Some("Debian package frr"),
        "xdp-filter" => Some("Debian package xdp-tools"),
        _ => None,
    }
}

fn file_has_word(path: &str, word: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.split_whitespace().any(|it| it == word))
}

fn works(attempt: impl FnOnce(&Namespace) -> bool) -> bool {
    Namespace::new("try").is_ok_and(|namespace| attempt(&namespace))
}

#[cfg(test)]
mod tests {
    use super::Requirement::*;

    #[test]
    fn says_what_is_lacking_and_what_helps() {
        let lacking = Program("no-such-program")
            .check()
            .expect_err("it is not there");
        assert_eq!(
            lacking.to_string(),
            "lacks the program no-such-program; install it (see `cargo xtask setup`)"
        );
        for (program, package) in [("python3", "python3-venv"), ("cc", "gcc")] {
            let remedy = Program(program).lacking().remedy;
            assert_eq!(remedy, format!("install it (Debian package {package})"));
        }
        assert!(FileSystem("no-such-fs").check().is_err());
        assert!(FileSystem("proc").check().is_ok());
        assert!(File("/no/such/file").check().is_err());
        assert!(Program("sh").check().is_ok());
    }

    #[test]
    fn macro_goes_on_when_nothing_is_lacking() {
        fn has() -> u32 {
            require!(Program("sh"), FileSystem("proc") => 7);
            8
        }
        assert_eq!(has(), 8);
    }

    #[test]
    fn kernel_facilities_are_tried_out() {
        require!(Root, Program("tc"), Program("nft"));
        assert!(
            QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000")
                .check()
                .is_ok()
        );
        assert!(QueueingDiscipline("no-such-discipline").check().is_err());
        assert!(
            NftRule("ct original packets > 45 ip dscp set 2")
                .check()
                .is_ok()
        );
        assert!(NftRule("no such rule").check().is_err());
        assert!(
            Device("dummy").check().is_ok()
                || Device("bridge").check().is_ok()
                || Device("vxlan id 1 dstport 4789").check().is_ok()
        );
        assert!(Device("no-such-kind").check().is_err());
    }
}
