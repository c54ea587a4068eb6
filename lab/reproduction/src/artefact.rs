//! The circumstances of a reproduction: command, commit, machine, and what each item cost.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use flow_report::Table;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike as _},
    utsname::uname,
};
use serde::Serialize;

/// The circumstances of a reproduction, which `artefact.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Artefact {
    /// The command that made it.
    pub command: String,
    /// Version of the program.
    pub version: &'static str,
    /// The commit of the sources, with a plus sign if they had changes; nothing where git does not know it.
    pub commit: Option<String>,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Costs of the items, in their order.
    pub items: Vec<Cost>,
}

/// The machine as its kernel describes it; what that does not tell is nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: Option<String>,
    /// Processors that this program may use.
    pub processors: usize,
    /// Size of the memory in MiB.
    pub memory_mib: Option<u64>,
    /// Name, release and architecture of the kernel.
    pub system: Option<String>,
}

/// The cost of one item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Id of the item, as in `C1`.
    pub id: &'static str,
    /// Time that it took in seconds.
    pub seconds: f64,
    /// Processor time in seconds, of this program and of those that it has started and that have ended.
    pub processor_seconds: f64,
    /// Runs made for it. Items of one experiment share runs: the first makes them. None were made if all are of an
    /// earlier call, whose time is not counted here.
    pub new_runs: usize,
}

/// A clock that an item's cost is read from.
pub struct Clock {
    started: Instant,
    processor: Duration,
    runs: BTreeMap<PathBuf, SystemTime>,
}

impl Artefact {
    /// Describes this machine and these sources; there are no items yet.
    pub fn new(command: String) -> Self {
        Self {
            command,
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            machine: Machine::this(),
            items: Vec::new(),
        }
    }

    /// Builds a table of the costs, with their sum.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["item", "seconds", "processor seconds", "new runs"]);
        let mut row = |name: &str, seconds: f64, processor: f64, runs: usize| {
            let [seconds, processor] = [seconds, processor].map(|it| format!("{it:.1}"));
            table.row([name.to_owned(), seconds, processor, runs.to_string()]);
        };
        for it in &self.items {
            row(it.id, it.seconds, it.processor_seconds, it.new_runs);
        }
        let sum = |of: fn(&Cost) -> f64| self.items.iter().map(of).sum::<f64>();
        row(
            "all",
            sum(|it| it.seconds),
            sum(|it| it.processor_seconds),
            self.items.iter().map(|it| it.new_runs).sum(),
        );
        table
    }

    /// Describes command, commit and machine in a line.
    pub fn sentence(&self) -> String {
        let Machine {
            processor,
            processors,
            memory_mib,
            system,
        } = &self.machine;
        let unknown = || "unknown".to_owned();
        format!(
            "{}, version {}, commit {}, on {processors} processors ({}), {} of memory, {}.",
            self.command,
            self.version,
            self.commit.clone().unwrap_or_else(unknown),
            processor.clone().unwrap_or_else(unknown),
            memory_mib.map_or_else(unknown, |it| format!("{:.1} GiB", it as f64 / 1024.0)),
            system.clone().unwrap_or_else(unknown),
        )
    }

    /// Writes all of it to `artefact.json`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let file = directory.join("artefact.json");
        let json = serde_json::to_string_pretty(self).context("cannot encode the artefact")?;
        fs::write(&file, json + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Clock {
    /// Starts; runs are kept in `directory`.
    pub fn start(directory: &Path) -> Self {
        Self {
            runs: runs(directory),
            processor: processor_time(),
            started: Instant::now(),
        }
    }

    /// Reads the cost of the item since then.
    pub fn cost(&self, id: &'static str, directory: &Path) -> Cost {
        let (seconds, processor) = (self.started.elapsed(), processor_time());
        let is_new = |(path, written): &(PathBuf, SystemTime)| self.runs.get(path) != Some(written);
        Cost {
            id,
            seconds: seconds.as_secs_f64(),
            processor_seconds: processor.saturating_sub(self.processor).as_secs_f64(),
            new_runs: runs(directory).into_iter().filter(is_new).count(),
        }
    }
}

impl Machine {
    /// Describes the machine that this runs on.
    pub fn this() -> Self {
        let value = |file: &str, key: &str| {
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find_map(|it| it.strip_prefix(key))?;
            Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let memory = value("/proc/meminfo", "MemTotal");
        let kib = memory.and_then(|it| it.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let system = uname().ok().map(|it| {
            [it.sysname(), it.release(), it.machine()]
                .map(|it| it.to_string_lossy())
                .join(" ")
        });
        Self {
            processor: value("/proc/cpuinfo", "model name"),
            processors: thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.map(|it| it / 1024),
            system,
        }
    }
}

/// Returns the commit that the sources of this program are of now, with a plus sign if they have changes.
pub fn commit() -> Option<String> {
    let mut commit = git(&["rev-parse", "HEAD"])?;
    if !git(&[&["status", "--porcelain"], &SOURCES[..]].concat())?.is_empty() {
        commit.push('+');
    }
    Some(commit)
}

/// Returns whether two commits have the same sources; not where git does not know one of them.
pub(crate) fn have_same_sources(one: &str, other: &str) -> bool {
    let changed = git(&[&["diff", "--name-only", one, other], &SOURCES[..]].concat());
    changed.is_some_and(|it| it.is_empty())
}

/// What programs are made of; pages are not.
const SOURCES: [&str; 4] = [
    "--",
    ":/",
    ":(exclude,top)docs",
    ":(exclude,top)CHANGELOG.md",
];

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn processor_time() -> Duration {
    let duration =
        |it: TimeVal| Duration::from_micros(u64::try_from(it.num_microseconds()).unwrap_or(0));
    [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN]
        .into_iter()
        .filter_map(|who| getrusage(who).ok())
        .map(|it| duration(it.user_time()) + duration(it.system_time()))
        .sum()
}

/// All runs that are kept, and when each was written.
fn runs(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.join("runs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(about) = entry.metadata() else {
                continue;
            };
            if about.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "json")
                && let Ok(written) = about.modified()
            {
                found.insert(path, written);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_of_what_was_done_and_written_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs/one");
        fs::create_dir_all(&runs).unwrap();
        fs::write(runs.join("known.json"), "{}").unwrap();
        fs::write(runs.join("again.json"), "{}").unwrap();
        let clock = Clock::start(directory.path());
        let until = processor_time() + Duration::from_millis(60);
        while processor_time() < until {}
        fs::write(runs.join("again.json"), "{ }").unwrap();
        fs::write(runs.join("new.json"), "{}").unwrap();
        fs::write(runs.join("new.flows.csv"), "").unwrap();
        let cost = clock.cost("C1", directory.path());
        assert_eq!((cost.id, cost.new_runs), ("C1", 2));
        // Other tests of this process count, too.
        assert!(cost.processor_seconds >= 0.06, "{cost:?}");
        assert!(cost.seconds > 0.0, "{cost:?}");
        let mut artefact = Artefact::new("cargo xtask reproduce C1".to_owned());
        artefact.items = vec![cost.clone(), cost];
        let table = artefact.table().to_text();
        let sum = table.lines().rfind(|it| it.contains("all")).unwrap();
        assert!(sum.contains('4'), "{table}");
        artefact.write(directory.path()).unwrap();
        let json = fs::read(directory.path().join("artefact.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["items"][1]["new_runs"], 2);
        assert!(
            artefact
                .sentence()
                .starts_with("cargo xtask reproduce C1, version")
        );
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.processors > 0);
        assert!(machine.memory_mib > Some(100), "{machine:?}");
        assert!(machine.system.is_some_and(|it| it.starts_with("Linux ")));
    }
}
