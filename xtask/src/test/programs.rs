//! The test programs that cargo builds, and how one of them is run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    libtest::{Reader, Tally},
    skips,
};
use crate::{
    command::{self, Run},
    project::{Project, find_program},
};

/// By which libtest is told how many tests may run at a time.
pub(super) const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// Names the file that tests write their names to which are to run alone (`flow_testbed::timed`).
const DEFER_VARIABLE: &str = "FLOW_TEST_DEFER";
/// What the harness says of a test that takes long, which is told at once.
const TAKES_LONG: &str = "has been running for over";

/// The tests of a library or a program, or an integration test, built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    /// The directory of its package, from the root of the tree.
    pub(super) package: String,
    /// `it`, or what the library or the program is called.
    pub(super) target: String,
    path: PathBuf,
}

/// The part of a message of cargo that tells of a test program.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the workspace's tests, or the integration tests of this name. These have the features that all tests
/// are built with, and are not built again with those.
pub(super) fn build(project: &Project, name: Option<&str>) -> Result<Vec<Program>> {
    let mut cargo = command::cargo()
        .args(["test", "--workspace", "--locked", "--no-run"])
        .args(name.iter().flat_map(|name| ["--test", name]))
        .arg("--message-format=json-render-diagnostics")
        .current_dir(&project.root);
    let mut programs = Vec::new();
    let status = cargo.stream(|line| programs.extend(program(line, &project.root)))?;
    cargo.check(status).context("cannot build the tests")?;
    // Cargo tells of them in the order in which they were built, which differs from run to run.
    programs.sort();
    Ok(programs)
}

fn program(message: &str, root: &Path) -> Option<Program> {
    let artifact: Artifact = serde_json::from_str(message).ok()?;
    let path = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?;
    let package = directory.strip_prefix(root).ok()?;
    Some(Program {
        package: package.to_str()?.to_owned(),
        target: artifact.target.name,
        path,
    })
}

/// Gives way to all others: whatever waits in a network finds a processor at once.
pub(super) fn with_the_rest_of_the_processors(program: &Path) -> Run {
    match find_program("chrt") {
        Some(chrt) => Run::new(chrt).args(["--idle", "0"]).arg(program),
        None => Run::new(program),
    }
}

/// How a program is run.
#[derive(Clone, Copy)]
pub(super) struct Manner<'a> {
    /// How many of its tests at a time.
    pub(super) threads: usize,
    /// Whether it is to have what others leave of the processors.
    pub(super) gives_way: bool,
    /// Where the program writes which of its tests are to run alone; without, all run.
    pub(super) deferred: Option<&'a Path>,
    /// What else it finds in its environment.
    pub(super) environment: &'a [(&'static str, PathBuf)],
}

/// What a program printed, and what came of its tests.
pub(super) struct Ended {
    pub(super) lines: Vec<String>,
    pub(super) tally: Tally,
    /// The tests that are to run alone, which count nothing yet.
    pub(super) deferred: Vec<String>,
}

impl Program {
    #[cfg(test)]
    pub(super) fn named(package: &str, target: &str) -> Self {
        Self {
            package: package.to_owned(),
            target: target.to_owned(),
            path: PathBuf::new(),
        }
    }

    /// Names it as a reader would look for it.
    pub(super) fn label(&self) -> String {
        format!("{} of {}", self.target, self.package)
    }

    /// Runs its tests, or those of these names.
    pub(super) fn run(&self, project: &Project, names: &[String], manner: Manner) -> Result<Ended> {
        let mut run = match manner.gives_way {
            true => with_the_rest_of_the_processors(&self.path),
            false => Run::new(&self.path),
        };
        if !names.is_empty() {
            run = run.arg("--exact").args(names);
        }
        let directory = project.root.join(&self.package);
        run = command::without_own_package(run)
            .env("CARGO_MANIFEST_DIR", &directory)
            .env_remove(DEFER_VARIABLE)
            .current_dir(directory);
        if std::env::var_os(THREADS_VARIABLE).is_none() {
            run = run.env(THREADS_VARIABLE, manner.threads.to_string());
        }
        for (name, value) in manner.environment {
            run = run.env(name, value);
        }
        if let Some(file) = manner.deferred {
            skips::clear(file)?;
            run = run.env(DEFER_VARIABLE, file);
        }
        let mut ended = self.count(&mut run)?;
        if let Some(file) = manner.deferred.filter(|file| file.exists()) {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            ended.deferred = text.lines().map(str::to_owned).collect();
            ended.tally.take_back(&ended.deferred);
        }
        Ok(ended)
    }

    fn count(&self, run: &mut Run) -> Result<Ended> {
        let (mut lines, mut tally) = (Vec::new(), Tally::default());
        let (mut reader, mut has_result) = (Reader::default(), false);
        let status = run.stream(|line| {
            if line.contains(TAKES_LONG) {
                eprintln!("{}: {line}", self.label());
            }
            has_result |= line.starts_with("test result: ");
            reader.read(line, &mut tally);
            lines.push(line.to_owned());
        })?;
        if !has_result || !status.success() && tally.failed() == 0 {
            let reason = format!("it ended without a result ({status})");
            tally.add(Tally::failure_for(&self.label(), &reason));
        }
        Ok(Ended {
            lines,
            tally,
            deferred: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_the_messages_of_cargo() {
        let message = |is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/tree/a/b/Cargo.toml","target":{{"name":"it"}},"profile":{{"test":{is_test}}},"executable":"/t/it-1"}}"#
            )
        };
        let found = program(&message(true), Path::new("/tree")).unwrap();
        assert_eq!(found.label(), "it of a/b");
        assert_eq!(found.path, Path::new("/t/it-1"));
        assert_eq!(program(&message(false), Path::new("/tree")), None);
        assert_eq!(program(&message(true), Path::new("/other")), None);
        let library = message(true).replace("\"/t/it-1\"", "null");
        assert_eq!(program(&library, Path::new("/tree")), None);
        assert_eq!(program("warning: noise", Path::new("/tree")), None);
    }

    /// A program that stands for one of libtest's.
    fn script(directory: &Path, text: &str) -> (Project, Program) {
        let path = directory.join("program");
        let mut file = fs::File::create(&path).unwrap();
        write!(file, "#!/bin/sh\n{text}\n").unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755))
            .unwrap();
        fs::create_dir(directory.join("package")).unwrap();
        let project = Project {
            root: directory.to_owned(),
            target: directory.to_owned(),
        };
        let program = Program {
            package: "package".to_owned(),
            target: "it".to_owned(),
            path,
        };
        (project, program)
    }

    const MANNER: Manner = Manner {
        threads: 2,
        gives_way: false,
        deferred: None,
        environment: &[],
    };

    #[test]
    fn tests_that_are_deferred_count_when_they_have_run() {
        let directory = tempfile::tempdir().unwrap();
        let (project, program) = script(
            directory.path(),
            "[ -n \"$FLOW_TEST_DEFER\" ] && echo a::timed >> \"$FLOW_TEST_DEFER\"\n\
             echo \"test a::timed ... ok\"\n\
             [ \"$*\" = '--exact a::timed' ] || echo \"test b ... ok\"\n\
             [ \"$*\" = '--exact a::timed' ] && n=1 || n=2\n\
             echo \"test result: ok. $n passed; 0 failed; 0 ignored\"",
        );
        let file = directory.path().join("deferred");
        let manner = Manner {
            deferred: Some(&file),
            ..MANNER
        };
        let first = program.run(&project, &[], manner).unwrap();
        assert_eq!(first.deferred, ["a::timed"]);
        assert_eq!(first.tally.passed(), 1);
        assert!(!first.tally.passed_tests.contains("a::timed"));
        assert!(first.tally.passed_tests.contains("b"));
        let alone = program.run(&project, &first.deferred, MANNER).unwrap();
        assert_eq!((alone.tally.passed(), alone.deferred.len()), (1, 0));
        assert!(alone.tally.passed_tests.contains("a::timed"));
    }

    #[test]
    fn program_that_ends_without_a_result_has_failed() {
        for text in ["echo running 3 tests; kill -9 $$", "exit 0"] {
            let directory = tempfile::tempdir().unwrap();
            let (project, program) = script(directory.path(), text);
            let ended = program.run(&project, &[], MANNER).unwrap();
            assert_eq!(ended.tally.failures, ["it of package"], "{text}");
        }
    }

    #[test]
    fn program_is_told_where_its_package_is_and_how_many_tests_may_run_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let (project, program) = script(
            directory.path(),
            "pwd; echo $CARGO_MANIFEST_DIR $RUST_TEST_THREADS $FLOW_A\n\
             echo 'test result: ok. 0 passed; 0 failed; 0 ignored'",
        );
        let manner = Manner {
            gives_way: true,
            environment: &[("FLOW_A", "b".into())],
            ..MANNER
        };
        let ended = program.run(&project, &[], manner).unwrap();
        let package = directory.path().join("package").display().to_string();
        assert_eq!(ended.lines[0], package);
        let threads = std::env::var(THREADS_VARIABLE).unwrap_or("2".to_owned());
        assert_eq!(ended.lines[1], format!("{package} {threads} b"));
    }
}
