//! The words of each command: its help and what it says when something is wrong, one snapshot each.
//!
//! Other tests hold exit codes, JSON and the values that a message must name.

mod border;
mod daemon;

use std::path::Path;
use std::process::{Command, Output};

use flow_testbed::require;
use flow_testbed::require::Requirement::File;

use crate::support::nobody::{as_nobody, open_to_everybody};
use crate::support::site::{BINARY, Site, on_site, output};
use crate::transcript::{Transcript, plain};

const TUNNELS: &str = "lan = 'lan'\n[short]\ndevice = 'wan0'\n[long]\ndevice = 'wan1'\n";
/// Two mistakes, each in a line of its own.
const WRONG_KEYS: &str = "[flows]\nthreshold = 0\nunit = 'bits'\n";

fn splitter(arguments: &[&str]) -> Output {
    output_of(Command::new(BINARY).args(arguments))
}

fn output_of(command: &mut Command) -> Output {
    plain(command).output().expect("it can be started")
}

/// Starts with what every command has: its help, and an option that there is not.
fn words_of(command: &'static str) -> Transcript {
    let mut words = Transcript::new("splitter", command);
    for (case, option) in [("help", "--help"), ("no such option", "--nonsense")] {
        let arguments = [command, option];
        words.add(case, &arguments, &splitter(&arguments));
    }
    words
}

/// Adds a case of wrong or incomplete arguments.
fn add(words: &mut Transcript, case: &str, arguments: &[&str]) {
    words.add(case, arguments, &splitter(arguments));
}

/// Pins the words of a command at a border, whose configuration starts without changes.
fn on_border(command: &'static str, cases: impl FnOnce(&mut Cases) + Send) {
    require!(File("/proc/sys/net/ipv6"));
    on_site(|site| {
        let mut words = words_of(command);
        words.hide(BINARY, "splitter");
        words.hide(
            site.path("").display().to_string().trim_end_matches('/'),
            "SITE",
        );
        let mut all = Cases { site, words };
        all.configure("");
        cases(&mut all);
        all.words.compare();
    });
}

/// Cases of a command at a border.
struct Cases<'s> {
    site: &'s Site,
    words: Transcript,
}

impl Cases<'_> {
    /// Adds what the command says now.
    fn add(&mut self, case: &str, arguments: &[&str]) {
        let said = self.run(arguments);
        self.words.add(case, arguments, &said);
    }

    /// Replaces the configuration as [`Site::configure`] does, with rules that every kernel has.
    fn configure(&self, changes: &str) {
        let marks = "[marks]\nmatch = 'tos'\n";
        self.site.configure(&format!("{changes}\n{marks}"));
    }

    /// Adds what it says to somebody without any rights.
    fn add_as_nobody(&mut self, case: &str, arguments: &[&str]) {
        open_to_everybody(self.site);
        self.words
            .add(case, arguments, &as_nobody(self.site, arguments));
    }

    /// Adds what it says of a configuration that is wrong, and of none.
    fn add_wrong_files(&mut self, arguments: &[&str]) {
        let right = std::fs::read(self.site.config()).expect("it is there");
        std::fs::write(self.site.config(), format!("{TUNNELS}{WRONG_KEYS}")).expect("a file");
        self.add("wrong values in the configuration", arguments);
        std::fs::remove_file(self.site.config()).expect("it is there");
        self.add("no configuration", arguments);
        std::fs::write(self.site.config(), right).expect("a file");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.site.command(arguments);
        plain(&mut command);
        output(command)
    }
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("splitter", "splitter");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("short help", &["-h"]),
        ("no command", &[]),
        ("no such command", &["demo", "--load", "96"]),
    ] {
        add(&mut words, case, arguments);
    }
    words.compare();
}

#[test]
fn words_of_check_are_those_reviewed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut words = words_of("check");
    words.hide(directory.path().display(), "DIRECTORY");
    let example = include_str!("../../crates/config/splitter.example.toml");
    let not_toml = "lan = ['lan']\n[short\n";
    for (case, name, text) in [
        ("the example", "example.toml", example),
        (
            "wrong values",
            "values.toml",
            &format!("{TUNNELS}{WRONG_KEYS}"),
        ),
        ("not TOML", "broken.toml", not_toml),
    ] {
        let path = file(directory.path(), name, text);
        add(&mut words, case, &["check", &path]);
    }
    add(&mut words, "no such file", &["check", "/nonexistent.toml"]);
    words.compare();
}

#[test]
fn words_of_config_are_those_reviewed() {
    let mut words = words_of("config");
    add(&mut words, "no command", &["config"]);
    for command in ["schema", "example"] {
        add(
            &mut words,
            "help of a command",
            &["config", command, "--help"],
        );
    }
    words.compare();
}

#[test]
fn words_of_advise_are_those_reviewed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut words = words_of("advise");
    words.hide(directory.path().display(), "DIRECTORY");
    for (case, arguments) in [
        ("a load without sizes", &["advise", "--load", "40"][..]),
        ("a load that is none", &["advise", "--load", "100"]),
        ("one rate", &["advise", "--rates", "100"]),
        ("a rate that is none", &["advise", "--rates", "100,0"]),
        ("no such file", &["advise", "--sizes", "/nonexistent.csv"]),
    ] {
        add(&mut words, case, arguments);
    }
    for (case, text) in [
        ("few flows", "1000\n2000\n"),
        ("a size that is none", "1000\nmany\n"),
        ("probabilities that fall", "1000,0.5\n2000,0.4\n3000,1\n"),
        ("an empty file", ""),
    ] {
        let path = file(directory.path(), "sizes.csv", text);
        add(&mut words, case, &["advise", "--sizes", &path]);
    }
    let sizes = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../netsim/crates/workload/distributions/web_search_dctcp_tg.csv"
    );
    let (path, name) = (Path::new(sizes), "sizes.csv");
    std::fs::copy(path, directory.path().join(name)).expect("a file");
    let path = directory.path().join(name).display().to_string();
    let arguments = ["advise", "--sizes", &path, "--load", "40"];
    add(&mut words, "a distribution", &arguments);
    let arguments = ["advise", "--recording", "/nonexistent", "--load", "40"];
    add(&mut words, "a recording has a load", &arguments);
    let arguments = ["advise", "--recording", &path];
    add(&mut words, "no recording", &arguments);
    add_without_an_agent(&mut words, directory.path(), &["advise"]);
    words.compare();
}

#[test]
fn words_of_record_are_those_reviewed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut words = words_of("record");
    words.hide(directory.path().display(), "DIRECTORY");
    for (case, arguments) in [
        ("no time", &["record", "--for", "soon"][..]),
        ("too long", &["record", "--for", "32d"]),
        ("an interval that misses flows", &["record", "-i", "60"]),
    ] {
        add(&mut words, case, arguments);
    }
    let text = format!("runtime_dir = {:?}\n{TUNNELS}", directory.path());
    let config = file(directory.path(), "splitter.toml", &text);
    let there = file(directory.path(), "day.flows", "");
    let missing = directory.path().join("missing/day.flows");
    for (case, output) in [
        ("a file that is there", there),
        ("no such directory", missing.display().to_string()),
    ] {
        let arguments = ["record", "--config", &config, "--output", &output];
        words.add(case, &arguments[..1], &splitter(&arguments));
    }
    words.compare();
}

/// Adds what a command that needs the daemon says where none runs.
fn add_without_an_agent(words: &mut Transcript, directory: &Path, arguments: &[&str]) {
    let text = format!("runtime_dir = {directory:?}\n{TUNNELS}");
    let path = file(directory, "splitter.toml", &text);
    let said = splitter(&[arguments, &["--config", &path]].concat());
    words.add("no agent", arguments, &said);
}
