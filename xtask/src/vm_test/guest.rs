//! The virtual machine: what is in its memory, and what it says.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    archive::Archive,
    kernels::Kernel,
    libraries,
    report::{Outcome, Row},
};
use crate::{
    command::{self, Run},
    project::Project,
};

pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Only emulated: Debian's kernels do not boot on every machine that offers KVM, and what the
/// verifier does is the same.
const MACHINE: [&str; 17] = [
    "-machine",
    "q35,accel=tcg",
    "-cpu",
    PROCESSOR,
    "-smp",
    "1",
    "-m",
    "512",
    "-display",
    "none",
    "-monitor",
    "none",
    "-serial",
    "stdio",
    "-nic",
    "none",
    "-no-reboot",
];

/// Without a fifth level of page tables and what guards a kernel from its users: together with pages that are not
/// zeroed before they are used (`init_on_alloc=0`), emulating them was a twelfth of a machine's time, and neither the
/// verifier nor a program sees any of it.
const PROCESSOR: &str = "max,la57=off,smap=off,smep=off,umip=off,pku=off";

/// With `panic=-1` and `-no-reboot` a panic ends the machine.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 init_on_alloc=0";

/// Ends what hangs. A machine takes some 40 s where two of them have a processor each; beside two busy
/// loops and four builds one had not come to its last row after 300 s.
const TIMEOUT_SECONDS: &str = "900";

/// What a line of results begins with (`lab/vm-guest`).
const MARKER: &str = "VM-TEST ";

/// How much of the console is shown when a machine did not come to its end.
const KEPT_LINES: usize = 40;

/// Where the agent looks for objects instead of those that it embeds.
const OBJECT_DIRECTORY: &str = "SPLITTER_EBPF_OBJECT_DIR";

/// Programs for the machine.
pub(super) struct Guest {
    /// Path in the machine, and content.
    files: BTreeMap<String, Vec<u8>>,
    command_line: String,
    directory: PathBuf,
}

/// Where the machine's programs come from.
#[derive(Clone, Copy)]
pub(crate) enum Programs {
    /// Built by themselves, without need of libraries.
    Apart,
    /// Built with the workspace's tests, which are there: only the machine's first process is missing.
    /// The libraries that they load go with them.
    WithTests,
}

impl Programs {
    fn build(self, project: &Project, directory: &Path) -> Run {
        let cargo = command::cargo()
            .args([
                "build", "--locked", "--bin", "splitter", "--bin", "vm-guest",
            ])
            .arg("--message-format=json-render-diagnostics")
            .current_dir(&project.root);
        match self {
            Self::Apart => cargo
                .args(["--package", "splitter-agent", "--package", "vm-guest"])
                .args(["--target", TARGET])
                .arg("--target-dir")
                .arg(directory.join("build"))
                .env("RUSTFLAGS", "-Ctarget-feature=+crt-static")
                .env_remove("CARGO_ENCODED_RUSTFLAGS")
                .env("CARGO_PROFILE_DEV_STRIP", "symbols"),
            // Naming tests has all features that are for tests, with which all else was built.
            Self::WithTests => cargo.args(["--workspace", "--test", "it"]),
        }
    }
}

impl Guest {
    /// Builds the programs that the machine runs.
    pub(super) fn build(project: &Project, source: Programs) -> Result<Self> {
        let directory = project.target.join("vm-test");
        let mut cargo = source.build(project, &directory);
        let mut built = Vec::new();
        let status = cargo.stream(|line| built.extend(executable(line)))?;
        cargo
            .check(status)
            .context("cannot build the programs of the virtual machine")?;
        let mut files = BTreeMap::new();
        for (path, target) in [("init", "vm-guest"), ("bin/splitter", "splitter")] {
            let (_, program) = built
                .iter()
                .find(|(name, _)| name == target)
                .with_context(|| format!("cargo built no program {target}"))?;
            files.insert(path.to_owned(), stripped(program, &directory)?);
            for (path, library) in libraries::of(program)? {
                files.insert(path, read(&library)?);
            }
        }
        let mut command_line = format!("{COMMAND_LINE} {}", libraries::FOUND_BY);
        if let Some(objects) = env::var_os(OBJECT_DIRECTORY) {
            // What the kernel does not know, it puts into the environment of the first process.
            command_line.push_str(&format!(" {OBJECT_DIRECTORY}=/objects"));
            for name in ["splitter.o", "splitter-log.o", "fabric.o"] {
                let object = read(&Path::new(&objects).join(name))?;
                files.insert(format!("objects/{name}"), object);
            }
        }
        Ok(Self {
            files,
            command_line,
            directory,
        })
    }

    /// Boots the kernel and returns what the machine reported.
    pub(super) fn try_on(&self, kernel: &Kernel) -> Result<Vec<Outcome>> {
        let initial = self.directory.join(format!("{}.cpio", kernel.series));
        fs::write(&initial, self.archive(kernel)?)
            .with_context(|| format!("cannot write {}", initial.display()))?;
        // `timeout` bounds the machine also when this process is killed; in the foreground it
        // leaves it within reach of Ctrl-C.
        let mut run = Run::new("timeout")
            .args(["--foreground", "--signal=KILL", TIMEOUT_SECONDS, QEMU])
            .args(MACHINE)
            .arg("-kernel")
            .arg(kernel.image())
            .arg("-initrd")
            .arg(&initial)
            .args(["-append", &self.command_line]);
        let mut console = Console::default();
        let status = run.stream(|line| console.read(line))?;
        let outcome = |row| Outcome::new(kernel.series, &kernel.release, row);
        let mut outcomes: Vec<_> = console.rows.drain(..).map(outcome).collect();
        if !console.is_done {
            let said: Vec<_> = console.last_lines.into();
            let ended = match status.code() {
                Some(137) | None => format!("was stopped after {TIMEOUT_SECONDS} s"),
                _ => format!("ended early ({status})"),
            };
            outcomes.push(outcome(Row::failed(
                "the machine",
                format!("{ended}; it had said last:\n{}", said.join("\n")),
            )));
        }
        Ok(outcomes)
    }

    fn archive(&self, kernel: &Kernel) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for directory in [
            "bin",
            "dev",
            libraries::DIRECTORY,
            libraries::LOADER_DIRECTORY,
            "modules",
            "objects",
            "proc",
            "run",
            "sys",
            "tmp",
        ] {
            archive.add_directory(directory);
        }
        archive.add_character_device("dev/console", 5, 1);
        for (path, content) in &self.files {
            archive.add_program(path, content);
        }
        for (number, module) in kernel.modules().enumerate() {
            archive.add_program(&format!("modules/{number}.ko"), &read(&module)?);
        }
        Ok(archive.finish())
    }
}

/// What a machine said so far.
#[derive(Default)]
struct Console {
    rows: Vec<Row>,
    is_done: bool,
    last_lines: VecDeque<String>,
}

impl Console {
    fn read(&mut self, line: &str) {
        // A message of the kernel may stand before it on the same line.
        let reported = line.split_once(MARKER).map(|(_, reported)| reported);
        match reported.and_then(|reported| serde_json::from_str(reported).ok()) {
            Some(Told::Row(row)) => self.rows.push(row),
            Some(Told::Done { done }) => self.is_done = done,
            None => {
                if self.last_lines.len() == KEPT_LINES {
                    self.last_lines.pop_front();
                }
                self.last_lines.push_back(line.to_owned());
            }
        }
    }
}

/// A line of results.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Row(Row),
    Done { done: bool },
}

/// The program that a message of cargo is about, with the name of its target.
fn executable(message: &str) -> Option<(String, PathBuf)> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: PathBuf,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let message: Message = serde_json::from_str(message).ok()?;
    Some((message.target.name, message.executable))
}

/// A program without what debuggers read, which would fill the machine's memory.
fn stripped(program: &Path, directory: &Path) -> Result<Vec<u8>> {
    let small = directory.join("stripped");
    Run::new("strip").arg("-o").arg(&small).arg(program).run()?;
    read(&small)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// glibc is what rustup has for every host; linked statically it needs no file of its own.
const TARGET: &str = "x86_64-unknown-linux-gnu";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_distinguished_from_the_rest_of_the_console() {
        let mut console = Console::default();
        console.read("Linux version 6.1");
        console.read(
            "[  1.0] x VM-TEST {\"name\":\"split\",\"object\":\"splitter.o\",\"attached\":[\"native\"],\"verified_instructions\":7,\"passed\":true,\"problem\":null}",
        );
        assert!(!console.is_done);
        console.read("VM-TEST {\"failed\": \"the guest panicked\"}");
        console.read("VM-TEST {\"done\": true}");
        assert!(console.is_done);
        assert_eq!(console.rows.len(), 1);
        assert_eq!(console.rows[0].verified_instructions, Some(7));
        let kept: Vec<_> = console.last_lines.into();
        assert_eq!(
            kept,
            [
                "Linux version 6.1",
                "VM-TEST {\"failed\": \"the guest panicked\"}"
            ]
        );
    }

    #[test]
    fn programs_are_found_among_the_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"splitter","kind":["bin"]},"executable":"/x/splitter"}"#;
        let expected = ("splitter".to_owned(), PathBuf::from("/x/splitter"));
        assert_eq!(executable(message), Some(expected));
        let library = r#"{"reason":"compiler-artifact","target":{"name":"aya"},"executable":null}"#;
        assert_eq!(executable(library), None);
    }
}
