//! Claims about real time: held, failed or not decided.
//!
//! A machine whose processors are taken away, or that runs other work, sends packets late for no
//! fault of the program under test. So a claim that needs real time runs once, next to a
//! witness that measures the machine: a claim that does not hold while steal, pressure or
//! the shapers' own lateness exceed its [`Bounds`] is *not decided*. It is not tried again. Every
//! such claim names its twin, a test of the same law where time is virtual, which decides always.
//!
//! Each outcome is a line of JSON in the file that the environment variable
//! [`CLAIMS_VARIABLE`] names; `cargo xtask test` counts them and checks the twins.
//!
//! Programs of tests that run side by side would strain what is claimed. Where [`DEFER_VARIABLE`]
//! names a file, a test that comes to a claim, or is about to take the machine away from others,
//! writes its name there and returns: `cargo xtask test` runs it again when nothing else runs.

mod strain;
mod witness;

use std::{
    env,
    fs::OpenOptions,
    io,
    io::Write as _,
    panic,
    path::Path,
    sync::{PoisonError, RwLock, RwLockWriteGuard},
    thread,
};

use serde::Serialize;

pub use self::strain::{Bounds, Meter, Strain};
use self::witness::is_carried;

/// Names the file that outcomes of timed claims are appended to, a line of JSON each.
pub const CLAIMS_VARIABLE: &str = "FLOW_TEST_CLAIMS";

/// Names the file that tests append their names to, a line each, instead of running what needs the
/// machine for itself.
pub const DEFER_VARIABLE: &str = "FLOW_TEST_DEFER";

/// Rates that a claim may run at, in Mbit/s, the most telling first.
pub(crate) const RATES_MBIT: [u32; 4] = [100, 50, 20, 10];

/// A law that is held on real packets in real time.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The law, in words.
    pub law: &'static str,
    /// The test that holds this law in virtual time: the last part of its name.
    pub twin: &'static str,
    /// How much of the machine may be missing for the claim to be decided all the same.
    pub bounds: Bounds,
}

/// An outcome of one run of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// The claim held.
    Held,
    /// The claim did not hold, on a machine that was there all the time.
    Failed(String),
    /// The claim did not hold, and the machine was not there all the time.
    NotDecided(String),
}

#[derive(Serialize)]
struct Record<'a> {
    test: &'a str,
    law: &'a str,
    twin: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
    strain: String,
}

/// Held by claims while they run, and alone by whoever takes the machine away from others.
static MACHINE: RwLock<()> = RwLock::new(());

/// Waits until no claim of this process runs, and lets none run until the guard is dropped: for
/// tests that take processors away on purpose. `None` where the test is deferred and has to return.
///
/// # Panics
/// Panics when a deferred test cannot be written down.
#[must_use = "a test that is deferred returns"]
pub fn disturb() -> Option<RwLockWriteGuard<'static, ()>> {
    (!is_deferred()).then(|| MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a claim once and records its outcome under the name of the test that calls it. Comes last in a
/// test, which may be deferred.
///
/// # Panics
/// Panics when the claim failed, when a deferred test cannot be written down, and when `attempt`
/// panics: an `assert!` in it holds at any time.
pub fn decide(claim: &Claim, attempt: impl FnOnce() -> Result<(), String>) {
    if !is_deferred() {
        decide_now(claim, attempt);
    }
}

/// Like [`decide`], of what takes the machine from others: no other claim of this process runs meanwhile.
///
/// # Panics
/// As [`decide`] does.
pub fn decide_alone(claim: &Claim, attempt: impl FnOnce() -> Result<(), String>) {
    if !is_deferred() {
        let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        decide_in_turn(claim, attempt);
    }
}

fn decide_now(claim: &Claim, attempt: impl FnOnce() -> Result<(), String>) {
    let _undisturbed = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    decide_in_turn(claim, attempt);
}

fn decide_in_turn(claim: &Claim, attempt: impl FnOnce() -> Result<(), String>) {
    let test = current_test();
    let meter = Meter::start();
    let held = panic::catch_unwind(panic::AssertUnwindSafe(attempt));
    let strain = meter.end();
    let outcome = match &held {
        Ok(held) => judge(held.clone(), &strain, &claim.bounds),
        Err(_) => Outcome::Failed("panicked".to_owned()),
    };
    record(&test, claim, &outcome, &strain);
    match (held, outcome) {
        (Err(cause), _) => panic::resume_unwind(cause),
        (_, Outcome::Failed(reason)) => panic!("{}: {reason} ({strain})", claim.law),
        (_, Outcome::Held | Outcome::NotDecided(_)) => {}
    }
}

/// The highest rate in Mbit/s at which an emulated link keeps rate and spacing on this machine now;
/// `None` where it keeps none of them.
fn highest_carried() -> Option<u32> {
    RATES_MBIT.into_iter().find(|mbit| is_carried(*mbit))
}

/// The lowest rate that is tried.
const LOWEST_MBIT: u32 = RATES_MBIT[RATES_MBIT.len() - 1];

/// Like [`decide`], at the highest rate in Mbit/s that an emulated link keeps on this machine now.
///
/// # Panics
/// As [`decide`] does.
pub fn decide_at_rate(claim: &Claim, attempt: impl FnOnce(u32) -> Result<(), String>) {
    if is_deferred() {
        return;
    }
    let _undisturbed = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let mbit = highest_carried().unwrap_or(LOWEST_MBIT);
    if mbit < RATES_MBIT[0] {
        let law = claim.law;
        eprintln!(
            "{law}: at {mbit} Mbit/s, since an emulated link does not keep a higher rate now"
        );
    }
    decide_in_turn(claim, || attempt(mbit));
}

/// Tells whether this test is to run later, by itself, and writes that down.
fn is_deferred() -> bool {
    env::var_os(DEFER_VARIABLE).is_some_and(|path| defer_to(Path::new(&path)))
}

fn defer_to(path: &Path) -> bool {
    // A test that runs alone has no thread of its own, and nothing beside it in its program.
    let thread = thread::current();
    let Some(test) = thread.name().filter(|name| *name != "main") else {
        return false;
    };
    append_line(path, test)
        .unwrap_or_else(|error| panic!("cannot defer {test} in {path:?}: {error}"));
    true
}

/// A claim that held is decided on any machine: a strain can break it and not make it.
fn judge(held: Result<(), String>, strain: &Strain, bounds: &Bounds) -> Outcome {
    match (held, strain.exceeded(bounds)) {
        (Ok(()), _) => Outcome::Held,
        (Err(reason), None) => Outcome::Failed(reason),
        (Err(reason), Some(excess)) => {
            // Logs may follow; a summary has one line for each claim.
            let reason = reason.lines().next().unwrap_or_default();
            Outcome::NotDecided(format!("{excess}; {reason}"))
        }
    }
}

fn record(test: &str, claim: &Claim, outcome: &Outcome, strain: &Strain) {
    let line = match outcome {
        Outcome::NotDecided(reason) => {
            format!("NOT DECIDED {test}: {reason}; {} decides\n", claim.twin)
        }
        _ => format!("TIMED {test}: {strain}\n"),
    };
    // Not `eprint!`, which the harness keeps to itself when a test passes.
    let _ = io::stderr().write_all(line.as_bytes());
    let Some(path) = env::var_os(CLAIMS_VARIABLE) else {
        return;
    };
    let record = Record {
        test,
        law: claim.law,
        twin: claim.twin,
        outcome,
        strain: strain.to_string(),
    };
    append(Path::new(&path), &record).unwrap_or_else(|error| {
        panic!("cannot record a timed claim in {path:?}: {error}");
    });
}

/// One write in append mode, so that lines of tests that run at once do not mix.
fn append(path: &Path, record: &Record<'_>) -> io::Result<()> {
    append_line(path, &serde_json::to_string(record)?)
}

fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// The harness names a test's thread after it, and cargo the program after its crate.
fn current_test() -> String {
    let program = env::current_exe().unwrap_or_default();
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    let program = stem.rsplit_once('-').map_or(&*stem, |(name, _hash)| name);
    let thread = thread::current();
    format!("{program}::{}", thread.name().unwrap_or("a test"))
}

/// Like [`assert!`], for claims that [`decide`] runs: returns the reason instead of panicking.
#[macro_export]
macro_rules! claim {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+));
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUIET: Strain = Strain::NONE;

    fn strained() -> Strain {
        Strain {
            stolen: 0.2,
            ..Strain::NONE
        }
    }

    #[test]
    fn only_a_strained_machine_excuses_a_claim_that_does_not_hold() {
        let bounds = Bounds::DEFAULT;
        let wrong = || Err("it was late\nand a log".to_owned());
        assert_eq!(judge(Ok(()), &QUIET, &bounds), Outcome::Held);
        assert_eq!(judge(Ok(()), &strained(), &bounds), Outcome::Held);
        assert_eq!(
            judge(wrong(), &QUIET, &bounds),
            Outcome::Failed("it was late\nand a log".to_owned())
        );
        let Outcome::NotDecided(reason) = judge(wrong(), &strained(), &bounds) else {
            panic!("a fifth of the processor time was stolen");
        };
        assert!(reason.ends_with("; it was late"), "{reason}");
        assert!(reason.contains("20.0 % of the processor time"), "{reason}");
    }

    #[test]
    fn outcome_is_a_line_of_json_with_its_twin() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("claims");
        let outcome = Outcome::NotDecided("late".to_owned());
        let record = Record {
            test: "a::b",
            law: "packets stay in order",
            twin: "c",
            outcome: &outcome,
            strain: QUIET.to_string(),
        };
        append(&path, &record).expect("a file");
        append(&path, &record).expect("a file");
        let text = std::fs::read_to_string(&path).expect("a file");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["outcome"], "not_decided");
        assert_eq!(lines[0]["reason"], "late");
        assert_eq!(lines[0]["twin"], "c");
    }

    #[test]
    fn deferred_test_is_written_down_and_one_without_a_thread_of_its_own_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deferred");
        let defer_in = |thread: &str| {
            let path = path.clone();
            let thread = thread::Builder::new().name(thread.to_owned());
            let thread = thread.spawn(move || defer_to(&path)).expect("a thread");
            thread.join().expect("no panic")
        };
        assert_eq!(["a::b", "main", "c"].map(defer_in), [true, false, true]);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text, "a::b\nc\n");
    }

    #[test]
    fn test_is_named_after_its_program_and_thread() {
        let name = current_test();
        assert!(name.starts_with("flow_testbed::"), "{name}");
    }

    #[test]
    fn machine_is_measured_while_a_claim_runs() {
        let meter = Meter::start();
        thread::sleep(Duration::from_millis(300));
        let strain = meter.end();
        assert!(strain.elapsed >= Duration::from_millis(300), "{strain:?}");
        assert!((0.0..=1.0).contains(&strain.stolen), "{strain:?}");
    }
}
