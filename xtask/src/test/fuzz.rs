//! Runs a fuzz target for a while, with stable Rust: libFuzzer needs what the
//! compiler counts, not the sanitizers, which only nightly has.

mod progress;
#[cfg(test)]
#[path = "../../../lab/fuzz/watch.rs"]
mod watch;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use self::progress::{COUNT, Progress, count_in};
use super::libtest::Tally;
use crate::{
    command::{self, Run},
    project::{Project, find_program},
};

/// Compiles for libFuzzer, as `RUSTC_WRAPPER`; where it is in `lab/fuzz/`.
const INSTRUMENT: &str = "instrument.sh";

/// One input takes some milliseconds of a processor (`lab/fuzz/processor_time.rs` has the limit count these) and
/// no memory to speak of. Inputs are as long as those of the corpus from the beginning. What has only taken long by
/// the wall is not kept: that befalls any input where the run is paused.
const BOUNDS: [&str; 4] = [
    "-timeout=10",
    "-report_slow_units=1000000",
    "-rss_limit_mb=1024",
    "-len_control=0",
];

/// What is shown of the fuzzer's output: its figures, or where it broke.
const SUMMARY_LINES: usize = 6;
const FAILURE_LINES: usize = 40;

/// Names the goal to a target.
const GOAL_VARIABLE: &str = "FUZZ_GOAL";

/// Tells a target after how many seconds of a processor it ends (`lab/fuzz/processor_time.rs`): beside other
/// programs it gets as far as by itself, only later.
const PROCESSOR_VARIABLE: &str = "FUZZ_PROCESSOR_SECONDS";
/// So many times as long by the wall ends a target in any case.
const MOST_TIMES: u32 = 20;

/// Weighing inputs by how rare what they reach is takes two fifths of the time of the liar's; over hours
/// chance does as well.
const OF_MANY: [&str; 1] = ["-entropic=0"];

/// By the wall: a target with a goal runs until it has counted so much, however long that takes.
const WITHOUT_END: u32 = 0;

/// A run of a target of `lab/fuzz/` from its corpus.
pub(super) struct Fuzz {
    target: &'static str,
    /// Of a processor.
    seconds: u32,
    /// What the target counts has to come to this: it runs until then.
    goal: Option<u64>,
    root: PathBuf,
    corpus: PathBuf,
    /// Where it is built: with other flags than everything else.
    build: PathBuf,
    /// What it comes upon. Outside the tree: the corpus grows by hand alone.
    findings: PathBuf,
}

impl Fuzz {
    pub(super) fn new(project: &Project, target: &'static str, seconds: u32) -> Self {
        let build = project.target.join("fuzz");
        Self {
            target,
            seconds,
            goal: None,
            root: project.root.clone(),
            corpus: project.root.join("lab/fuzz/corpus").join(target),
            findings: build.join("findings").join(target),
            build,
        }
    }

    /// Runs until the target has counted so many. A run that is interrupted goes on where it was, with what
    /// it had found worth keeping, when it is started again of the same source.
    pub(super) fn until(mut self, goal: u64) -> Self {
        self.goal = Some(goal);
        self.seconds = WITHOUT_END;
        // Apart from what shorter runs find and remove.
        self.findings.set_file_name(format!("{}-goal", self.target));
        self
    }

    fn name(&self) -> String {
        match self.goal {
            Some(goal) => format!("fuzz {} {goal} times", self.target),
            None => format!("fuzz {} {} s", self.target, self.seconds),
        }
    }

    /// Runs targets at the same time, each on one processor, and passes those of which no input was
    /// found that breaks them.
    pub(super) fn check_all(targets: &[Self]) -> Result<Tally> {
        let mut tally = Tally::default();
        let has_compiler = find_program("c++").is_some() || std::env::var_os("CXX").is_some();
        if !has_compiler {
            for target in targets {
                let reason = "there is no C++ compiler to build libFuzzer with";
                tally.add(Tally::skip(&target.name(), reason));
            }
            return Ok(tally);
        }
        let programs = Self::build(targets)?;
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = targets
                .iter()
                .zip(&programs)
                .map(|(target, program)| scope.spawn(move || target.check(program)))
                .collect();
            running
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect()
        });
        for outcome in outcomes {
            tally.add(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(tally)
    }

    /// Runs the target and says how to replay what breaks it. What the fuzzer prints goes to a file.
    fn check(&self, program: &Path) -> Result<Tally> {
        let log = self.findings.join("log");
        let progress = match self.goal {
            Some(_) => Progress::take_up(&self.findings, program, &log)?,
            None => Progress::default(),
        };
        let inputs = match progress.counted {
            0 => self.empty("inputs")?,
            // It goes on with these.
            _ => self.findings.join("inputs"),
        };
        let crashes = self.empty("crashes")?;
        let output =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut prefix = crashes.clone().into_os_string();
        prefix.push("/");
        // The first directory is the one that is written to.
        let mut run = self
            .run(program, &inputs, &prefix.to_string_lossy())
            .arg(&self.corpus)
            .output_to(output)?;
        if let Some(goal) = self.goal {
            let left = goal.saturating_sub(progress.counted);
            run = run.env(GOAL_VARIABLE, left.to_string());
            progress.keep(&self.findings)?;
        } else {
            run = run.env(PROCESSOR_VARIABLE, self.seconds.to_string());
        }
        let status = run.status()?;
        let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let kept = if status.success() {
            SUMMARY_LINES
        } else {
            FAILURE_LINES
        };
        let last = lines
            .get(lines.len().saturating_sub(kept)..)
            .unwrap_or_default();
        eprintln!("{}:\n  {}", self.name(), last.join("\n  "));
        let counted = progress.counted + count_in(&text);
        if counted > 0 {
            eprintln!("  {COUNT}{counted}");
        }
        let is_enough = self.goal.is_none_or(|goal| counted >= goal);
        // What stopped it otherwise may be gone when it is started again.
        if is_enough || !status.success() && !files(&crashes)?.is_empty() {
            Progress::forget(&self.findings)?;
        }
        if status.success() && !is_enough {
            eprintln!("error: it ended before its goal");
            return Ok(Tally::failure(&self.name()));
        }
        if status.success() {
            return Ok(Tally::success());
        }
        eprintln!(
            "error: `{run}` failed with {status}; all that it printed is in {}",
            log.display()
        );
        for input in files(&crashes)? {
            eprintln!("{}", advice(program, &input, &self.corpus));
        }
        Ok(Tally::failure(&self.name()))
    }

    /// Compiles targets, which share most of what is built, and returns their programs.
    fn build(targets: &[Self]) -> Result<Vec<PathBuf>> {
        let Some(first) = targets.first() else {
            return Ok(Vec::new());
        };
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let host = Run::new(rustc).args(["--print", "host-tuple"]).read()?;
        let host = host.trim();
        let here = first.root.join("lab/fuzz");
        // Naming the target tells build scripts, which run here, from what is fuzzed.
        command::cargo()
            .args(["build", "--release", "--locked"])
            .args(targets.iter().flat_map(|it| ["--bin", it.target]))
            .args(["--target", host, "--manifest-path"])
            .arg(here.join("Cargo.toml"))
            .env("RUSTC_WRAPPER", here.join(INSTRUMENT))
            .env("FUZZED_ROOT", &first.root)
            .env("CARGO_TARGET_DIR", &first.build)
            .run()
            .context("cannot build the fuzz targets")?;
        let built = first.build.join(host).join("release");
        Ok(targets.iter().map(|it| built.join(it.target)).collect())
    }

    fn run(&self, program: &Path, inputs: &Path, prefix: &str) -> Run {
        let many: &[_] = match self.goal {
            Some(_) => &OF_MANY,
            None => &[],
        };
        Run::new(program)
            .arg(format!(
                "-max_total_time={}",
                self.seconds.saturating_mul(MOST_TIMES)
            ))
            .args(BOUNDS)
            .args(many)
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={prefix}"))
            .arg(inputs)
    }

    /// A directory of that name without what an earlier run left.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let directory = self.findings.join(name);
        let context = || format!("cannot empty {}", directory.display());
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(context)?;
        }
        fs::create_dir_all(&directory).with_context(context)?;
        Ok(directory)
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("cannot list {}", directory.display());
    let entries = fs::read_dir(directory).with_context(context)?;
    entries
        .map(|entry| Ok(entry.with_context(context)?.path()))
        .collect()
}

/// What to do about an input that breaks the target.
fn advice(program: &Path, input: &Path, corpus: &Path) -> String {
    format!(
        "The input that broke it: {input}\n  \
         replay it:  {program} {input}\n  \
         shrink it:  {program} -minimize_crash=1 -max_total_time=60 {input}\n  \
         keep it:    copy it to {corpus}, where `cargo test` replays it from then on\n\
         The next run removes it.",
        input = input.display(),
        program = program.display(),
        corpus = corpus.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fuzz(directory: &Path) -> Fuzz {
        let project = Project {
            root: directory.join("tree"),
            target: directory.join("target"),
        };
        Fuzz::new(&project, "decoder", 7)
    }

    #[test]
    fn a_run_is_bounded_and_writes_outside_the_tree() {
        let fuzz = fuzz(Path::new("/x"));
        let run = fuzz.run(Path::new("decoder"), Path::new("/y"), "/z/");
        assert_eq!(
            run.to_string(),
            "decoder -max_total_time=140 -timeout=10 -report_slow_units=1000000 -rss_limit_mb=1024 -len_control=0 -print_final_stats=1 -artifact_prefix=/z/ /y"
        );
        assert!(!fuzz.findings.starts_with("/x/tree"));
    }

    #[test]
    fn a_goal_takes_as_long_as_it_takes_and_keeps_to_itself() {
        let [short, long] = [fuzz(Path::new("/x")), fuzz(Path::new("/x")).until(100)];
        let run = long.run(Path::new("decoder"), Path::new("/y"), "/z/");
        assert!(run.to_string().contains(" -max_total_time=0 "), "{run}");
        assert_ne!(short.findings, long.findings);
    }

    #[test]
    fn what_an_earlier_run_found_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let fuzz = fuzz(directory.path());
        let crashes = fuzz.empty("crashes").unwrap();
        fs::write(crashes.join("crash-1"), "").unwrap();
        assert_eq!(files(&crashes).unwrap(), [crashes.join("crash-1")]);
        assert_eq!(fuzz.empty("crashes").unwrap(), crashes);
        assert!(files(&crashes).unwrap().is_empty());
    }
}
