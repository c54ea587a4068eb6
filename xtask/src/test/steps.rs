//! The steps, in the order in which they run: what is quick to fail comes first.

use anyhow::Result;

use super::{
    Tier, beside::Beside, dependencies, emulated, fuzz::Fuzz, libtest::Tally, newcomer, packages,
    receivers, semver, vectors, workspace,
};
use crate::{
    command::{self, Run},
    dist, docs,
    ebpf::{self, Verdict},
    header,
    project::Project,
    setup::{self, Outcome, Purpose},
    vm_test,
};

/// So many datagrams of a key holder that lies, sealed, have to leave endpoints as they should be.
const DATAGRAMS_OF_A_LIAR: u64 = 100_000_000;

/// One thing to check.
pub(super) struct Step {
    /// The name for `--only`, and in records.
    pub(super) id: &'static str,
    pub(super) tier: Tier,
    pub(super) title: String,
    /// The step beside which this one runs, if that runs too: it computes, and leaves the other one's programs alone.
    pub(super) beside: Option<&'static str>,
    pub(super) check: Box<dyn FnOnce() -> Result<Tally>>,
}

/// Every step of both tiers.
pub(super) fn all(project: &Project, fuzz_seconds: u32, companions: &Beside) -> Vec<Step> {
    let mut steps = vec![
        step("setup", "setup", install),
        formatting(project),
        of_project(
            project,
            "header",
            "the header for C is what the source makes",
            check_header,
        ),
        of_project(
            project,
            "vectors",
            "test vectors are those of another implementation",
            vectors::check,
        ),
        of_project(
            project,
            "deny",
            "dependencies' licences, bans and sources",
            dependencies::check,
        ),
        lints(project).beside("ebpf"),
        lints_without_std(project).beside("ebpf"),
        kernel_programs(project, companions),
        of_project(
            project,
            "rules",
            "rules of the workspace",
            workspace::check_rules,
        ),
        documentation(project),
        tests(project, companions),
        export_lints(project).beside("tests"),
        of_project(
            project,
            "targets",
            "other systems, and targets without one",
            packages::check_targets,
        )
        .beside("tests"),
        of_project(
            project,
            "receivers",
            "receivers in a browser, in Node and on a bare board",
            receivers::check,
        )
        .beside("tests"),
        fuzz(project, fuzz_seconds).beside("tests"),
        book(project),
        // Programs with a feature more take the places of those that the book runs.
        export_tests(project),
        export_tests_of_programs(project),
        of_project(project, "kernels", "other kernels", try_other_kernels),
    ];
    steps.push(fuzz_for_long(project, fuzz_seconds.saturating_mul(10)));
    steps.push(soak(project));
    steps.push(hostile_frames(project));
    steps.push(figures(project));
    let full: [(_, _, Check); 5] = [
        ("aarch64", "tests on an emulated AArch64", emulated::check),
        (
            "packages",
            "packages build from their archives",
            packages::verify,
        ),
        (
            "newcomer",
            "programs elsewhere add the packages from a registry",
            newcomer::check,
        ),
        (
            "reproducible",
            "packages of two builds in different directories are equal",
            check_reproducible,
        ),
        (
            "semver",
            "what libraries promise, since the last release",
            semver::check,
        ),
    ];
    steps.extend(full.map(|(id, title, check)| Step {
        tier: Tier::Full,
        ..of_project(project, id, title, check)
    }));
    steps
}

impl Step {
    fn beside(self, host: &'static str) -> Self {
        Self {
            beside: Some(host),
            ..self
        }
    }
}

/// Most of it is one chain of compilers, which leaves a processor to others.
fn kernel_programs(project: &Project, companions: &Beside) -> Step {
    let (own, companions) = (project.clone(), companions.clone());
    let title = "kernel programs are what the source makes";
    step("ebpf", title, move || {
        companions.during(|| check_ebpf(&own))
    })
}

fn tests(project: &Project, companions: &Beside) -> Step {
    let (own, companions) = (project.clone(), companions.clone());
    step("tests", "tests", move || {
        workspace::check(&own, &companions)
    })
}

fn check_reproducible(project: &Project) -> Result<Tally> {
    dist::check_reproducible(project)?;
    Ok(Tally::success())
}

/// What is missing makes tests skip rather than fail, so that a machine that
/// cannot have everything still tests what it can.
fn install() -> Result<Tally> {
    Ok(match setup::ensure(&Purpose::ALL)? {
        Outcome::Ready => Tally::success(),
        Outcome::Incomplete(reason) => {
            eprintln!("warning: {reason}");
            Tally::skip("setup", &reason)
        }
    })
}

/// The workspace, and the workspaces of their own next to it.
fn formatting(project: &Project) -> Step {
    let manifests = [
        "Cargo.toml",
        "splitter-ebpf/Cargo.toml",
        "lab/fuzz/Cargo.toml",
        "cloudburst/crates/code/examples/browser/Cargo.toml",
        "cloudburst/crates/code/examples/bare-metal/Cargo.toml",
    ];
    let manifests = manifests.map(|manifest| project.root.join(manifest));
    step("format", "format", move || {
        for manifest in manifests {
            command::cargo()
                .args(["fmt", "--all", "--check", "--manifest-path"])
                .arg(manifest)
                .run()?;
        }
        Ok(Tally::success())
    })
}

fn lints(project: &Project) -> Step {
    let clippy = cargo(project).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-Dwarnings",
    ]);
    command_step("lints", "lints", clippy)
}

/// Features of a workspace are built together: only by itself is it without `std`.
fn lints_without_std(project: &Project) -> Step {
    let clippy = cargo(project).args([
        "clippy",
        "--package=cloudburst-code",
        "--no-default-features",
        "--locked",
        "--",
        "-Dwarnings",
    ]);
    command_step("no-std", "lints: Cloudburst's code without std", clippy)
}

/// What exports over OTLP, each with the feature that is off by default.
const EXPORT: [&str; 4] = [
    "--package=flow-telemetry",
    "--package=splitter-agent",
    "--package=cloudburst-cli",
    "--features=flow-telemetry/otlp,splitter-agent/otlp,cloudburst-cli/otlp",
];

fn export_lints(project: &Project) -> Step {
    let clippy = cargo(project).arg("clippy").args(EXPORT);
    let clippy = clippy.args(["--all-targets", "--locked", "--", "-Dwarnings"]);
    command_step("otlp-lints", "lints of the export over OTLP", clippy)
}

/// A collector in the tests takes what comes.
fn export_tests(project: &Project) -> Step {
    let test = cargo(project)
        .arg("test")
        .args(["--package=flow-telemetry", "--features=otlp"])
        .args(["--locked", "--test", "otlp"]);
    command_step("otlp", "tests of the export over OTLP", test)
}

/// The same of the programs, which are built anew for it; their other tests do not need the feature.
fn export_tests_of_programs(project: &Project) -> Step {
    let test = cargo(project).arg("test").args(EXPORT);
    let test = test.args(["--locked", "--lib", "--test", "it", "otlp"]);
    Step {
        tier: Tier::Full,
        ..command_step("otlp-programs", "programs export over OTLP", test)
    }
}

fn documentation(project: &Project) -> Step {
    let doc = cargo(project)
        .args(["doc", "--workspace"])
        .args(["--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-Dwarnings");
    command_step("docs", "documentation", doc)
}

/// After the tests, with which everything that it runs is built: as packages of their own, programs would
/// be compiled once more with fewer features.
fn book(project: &Project) -> Step {
    let own = project.clone();
    let title = "the book's links, commands, figures and numbers";
    let built = cargo(project).args(["test", "--workspace", "--locked", "--no-run", "--quiet"]);
    step("book", title, move || match docs::check(&own, built)? {
        None => Ok(Tally::success()),
        Some(missing) => Ok(Tally::skip("docs --check", &missing)),
    })
}

/// What takes a course of calls is fuzzed by hand, for hours; its corpus is replayed by its tests.
fn fuzz(project: &Project, seconds: u32) -> Step {
    let targets = ["decoder", "packet", "liar"].map(|target| Fuzz::new(project, target, seconds));
    let title = format!("fuzz decoder, packet and liar, {seconds} s of a processor each");
    step("fuzz", title, move || Fuzz::check_all(&targets))
}

fn fuzz_for_long(project: &Project, seconds: u32) -> Step {
    let [decoder, packet, liar] =
        ["decoder", "packet", "liar"].map(|target| Fuzz::new(project, target, seconds));
    let targets = [decoder, packet, liar.until(DATAGRAMS_OF_A_LIAR)];
    let title = format!(
        "fuzz decoder and packet, {seconds} s of a processor each, liar for {DATAGRAMS_OF_A_LIAR} datagrams"
    );
    Step {
        tier: Tier::Full,
        ..step("fuzz-long", title, move || Fuzz::check_all(&targets))
    }
}

/// What cannot be tried for want of qemu or a kernel is skipped.
fn try_other_kernels(project: &Project) -> Result<Tally> {
    let report = vm_test::run(project, vm_test::Programs::WithTests)?;
    println!("{}", vm_test::table(&report.outcomes));
    let mut tally = Tally::default();
    for outcome in &report.outcomes {
        tally.add(match outcome.passed() {
            true => Tally::success(),
            false => Tally::failure(&outcome.name()),
        });
    }
    for (kernel, reason) in &report.skipped {
        tally.add(Tally::skip(kernel, reason));
    }
    Ok(tally)
}

fn check_header(project: &Project) -> Result<Tally> {
    Ok(match header::check(project)? {
        header::Verdict::Fresh => Tally::success(),
        header::Verdict::NoGenerator(reason) => Tally::skip("header --check", &reason),
    })
}

fn check_ebpf(project: &Project) -> Result<Tally> {
    Ok(match ebpf::check(project, None)? {
        Verdict::Fresh => Tally::success(),
        Verdict::Loads(how) => {
            eprintln!("{how}");
            Tally::success()
        }
        Verdict::NoCompilers(reason) => Tally::skip("build-ebpf --check", &reason),
    })
}

/// Many times as many months of messages, and worlds with an adversary, as in every run of the tests.
fn soak(project: &Project) -> Step {
    let test = cargo(project)
        .args(["test", "--locked", "--package", "cloudburst-proto"])
        .args(["--test", "it", "--", "soak::", "adversary::"])
        .env("CLOUDBURST_MONTHS", "100")
        .env("CLOUDBURST_ADVERSARIES", "20000");
    let title = "100 months of messages, 20,000 worlds with an adversary";
    Step {
        tier: Tier::Full,
        ..command_step("soak", title, test)
    }
}

/// A thousand times as many hostile frames as in every run of the tests, with overflow checks.
fn hostile_frames(project: &Project) -> Step {
    let run = cargo(project)
        .args([
            "run",
            "--profile",
            "hostile",
            "--locked",
            "--package",
            "hostile",
        ])
        .args(["--", "--frames", "77000000"]);
    Step {
        tier: Tier::Full,
        ..command_step("hostile", "77 million hostile frames", run)
    }
}

/// The papers' figures in their short form: minutes of simulation.
fn figures(project: &Project) -> Step {
    let output = project.target.join("full-tier-figures");
    let reproduce = cargo(project)
        .args(["run", "--release", "--locked", "--package", "reproduction"])
        .args(["--", "reproduce", "all", "--quick", "--out"])
        .arg(output);
    Step {
        tier: Tier::Full,
        ..command_step("figures", "the papers' figures, quick", reproduce)
    }
}

fn cargo(project: &Project) -> Run {
    command::cargo().current_dir(&project.root)
}

/// What checks something of a project.
type Check = fn(&Project) -> Result<Tally>;

fn of_project(project: &Project, id: &'static str, title: &str, check: Check) -> Step {
    let own = project.clone();
    step(id, title, move || check(&own))
}

fn step(
    id: &'static str,
    title: impl Into<String>,
    check: impl FnOnce() -> Result<Tally> + 'static,
) -> Step {
    Step {
        id,
        tier: Tier::Default,
        title: title.into(),
        beside: None,
        check: Box::new(check),
    }
}

fn command_step(id: &'static str, title: &str, command: Run) -> Step {
    step(id, title, move || {
        command.run()?;
        Ok(Tally::success())
    })
}
