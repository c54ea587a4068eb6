//! `build-ebpf`: the kernel programs, from source to the objects that are
//! committed and that the agent embeds.

mod pair;
mod record;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use anyhow::{Context, Result, bail};

pub(crate) use self::pair::{Pair, bpf_linker_version};
use self::{pair::Tools, record::Record};
use crate::{
    command::{self, Run},
    elf,
    project::{Project, cargo_home},
    setup::{self, Outcome, Purpose},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Build next to the tree and fail when the committed objects are stale.
    #[arg(long)]
    check: bool,
    /// Compilers to build with; without it, the ones that built the committed
    /// objects if they are there, else any that are.
    #[arg(long, value_enum)]
    pair: Option<Pair>,
}

/// What a check found.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The committed objects are what the source makes.
    Fresh,
    /// Other compilers: objects cannot be compared, but build and load.
    Loads(String),
    /// No compilers here; the text says how to get them.
    NoCompilers(String),
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if Pair::ALL.iter().all(|pair| !pair.is_present())
        && let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Ebpf])?
    {
        bail!("there is nothing to build the kernel programs with: {reason}");
    }
    if !arguments.check {
        build(project, arguments.pair)?;
        return Ok(ExitCode::SUCCESS);
    }
    match check(project, arguments.pair)? {
        Verdict::Fresh => eprintln!("The committed objects are what the source makes."),
        Verdict::Loads(how) => eprintln!("{how}"),
        Verdict::NoCompilers(reason) => bail!(reason),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds and replaces the committed objects and their record.
fn build(project: &Project, wanted: Option<Pair>) -> Result<()> {
    let Some(tools) = choose(project, wanted)? else {
        bail!(pair::no_compilers());
    };
    let built = compile(project, &tools)?;
    let mut record = Record::new(tools.identity());
    for (object, fresh) in OBJECTS.iter().zip(&built) {
        let committed = project.root.join(object.committed);
        let directory = committed.parent().unwrap_or(&project.root);
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        fs::copy(fresh, &committed)
            .with_context(|| format!("cannot write {}", committed.display()))?;
        record.add(object.committed, &read(&committed)?);
        eprintln!("Wrote {}", object.committed);
    }
    record.write(&project.root.join(RECORD))
}

/// Builds next to the tree and compares, or loads what cannot be compared.
pub(crate) fn check(project: &Project, wanted: Option<Pair>) -> Result<Verdict> {
    let record = Record::read(&project.root.join(RECORD))?;
    record.verify(&project.root)?;
    let Some(tools) = choose(project, wanted)? else {
        return Ok(Verdict::NoCompilers(pair::no_compilers()));
    };
    let built = compile(project, &tools)?;
    if *tools.identity() == record.toolchain {
        return compare(project, &built);
    }
    load(project, &built)?;
    Ok(Verdict::Loads(format!(
        "The committed objects were built with {}, which is not here, so they were not compared. \
         {} built the programs, and what it built loads.",
        record.toolchain,
        tools.identity()
    )))
}

fn compare(project: &Project, built: &[PathBuf]) -> Result<Verdict> {
    let mut stale = Vec::new();
    for (object, fresh) in OBJECTS.iter().zip(built) {
        let committed = read(&project.root.join(object.committed))?;
        let differences = elf::differences(&committed, &read(fresh)?)
            .with_context(|| format!("cannot compare {}", object.committed))?;
        if !differences.is_empty() {
            stale.push(format!("{}: {}", object.committed, differences.join(", ")));
        }
    }
    if stale.is_empty() {
        return Ok(Verdict::Fresh);
    }
    bail!(
        "the committed objects are not what the source makes. Sections that differ:\n  {}\n\
         Run `cargo xtask build-ebpf` and commit what it writes.",
        stale.join("\n  ")
    )
}

/// Runs the tests that pass packets through the programs on the fresh objects.
fn load(project: &Project, built: &[PathBuf]) -> Result<()> {
    let directory = built.first().and_then(|object| object.parent());
    command::cargo()
        .args(["test", "--package", "splitter-agent"])
        .args(LOAD_TEST)
        .env(OBJECT_DIRECTORY, directory.unwrap_or(&project.target))
        .current_dir(&project.root)
        .run()
        .context("the kernel programs were built, but do not pass their tests")
}

fn choose(project: &Project, wanted: Option<Pair>) -> Result<Option<Tools>> {
    let recorded = Record::read(&project.root.join(RECORD)).ok();
    let order = wanted
        .into_iter()
        .chain(recorded.map(|record| record.toolchain.pair))
        .chain(Pair::ALL);
    for pair in order {
        if pair.is_present() {
            return pair.tools().map(Some);
        }
        if wanted == Some(pair) {
            bail!("{pair} is not here, or not whole. {}", pair.remedy());
        }
    }
    Ok(None)
}

/// Builds every object and returns where they are, in the order of [`OBJECTS`].
fn compile(project: &Project, tools: &Tools) -> Result<Vec<PathBuf>> {
    eprintln!("Building the kernel programs with {}", tools.identity());
    let target = project.target.join("ebpf");
    let output = target.join("objects");
    fs::create_dir_all(&output)
        .with_context(|| format!("cannot make the directory {}", output.display()))?;
    let flags = rust_flags(project, tools, &target)?;
    let profiles: BTreeSet<_> = OBJECTS.iter().map(|object| object.profile).collect();
    // Each compiles a core library of its own, mostly on one processor.
    thread::scope(|scope| {
        let place = (target.as_path(), flags.as_str());
        let running: Vec<_> = profiles
            .into_iter()
            .map(|profile| scope.spawn(move || compile_profile(project, tools, profile, place)))
            .collect();
        running.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let built = OBJECTS.iter().map(|object| output.join(object.file_name()));
    Ok(built.collect())
}

/// Builds the objects of a profile, those with the same features by one call of cargo.
fn compile_profile(
    project: &Project,
    tools: &Tools,
    profile: &str,
    (target, flags): (&Path, &str),
) -> Result<()> {
    let objects = || OBJECTS.iter().filter(|object| object.profile == profile);
    let features: BTreeSet<_> = objects().map(|object| object.feature).collect();
    for feature in features {
        let objects: Vec<_> = objects().filter(|it| it.feature == feature).collect();
        let programs = objects.iter().flat_map(|object| ["--bin", object.program]);
        tools
            .cargo()
            .args(["build", "--locked", "-Zbuild-std=core"])
            .args(["--profile", profile, "--target", TARGET])
            .args(programs)
            .args(feature.iter().flat_map(|feature| ["--features", feature]))
            .arg("--target-dir")
            .arg(target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags)
            // Compiled by parts, the same source makes other bytes.
            .env("CARGO_INCREMENTAL", "0")
            .current_dir(project.root.join("splitter-ebpf"))
            .run()?;
        // With other features, a program takes the place of the one before.
        for object in objects {
            let linked = target.join(TARGET).join(profile).join(object.program);
            let stripped = target.join("objects").join(object.file_name());
            strip(tools, &linked, &stripped)?;
        }
    }
    Ok(())
}

/// Takes DWARF out, whose strings keep paths of this machine; BTF stays.
fn strip(tools: &Tools, from: &Path, to: &Path) -> Result<()> {
    Run::new(&tools.strip)
        .arg("--strip-debug")
        .arg("-o")
        .args([to, from])
        .run()?;
    let missing = elf::missing(&read(to)?, &[".BTF", ".BTF.ext"])?;
    if !missing.is_empty() {
        bail!(
            "{} lacks the sections {}: the kernel would refuse it; check the linker flags",
            to.display(),
            missing.join(", ")
        );
    }
    Ok(())
}

/// [`FLAGS`] and whatever keeps the paths of this machine out of the objects, in
/// the form of `CARGO_ENCODED_RUSTFLAGS`.
fn rust_flags(project: &Project, tools: &Tools, target: &Path) -> Result<String> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    // The last prefix that matches counts, so the inner directories come last.
    let remapped = [
        remap(&tools.sysroot, "/rust"),
        remap(&cargo_home()?, "/cargo"),
        remap(&project.root, "/project"),
        remap(target, "/target"),
    ];
    let flags = FLAGS.iter().map(|flag| (*flag).to_owned());
    Ok(flags.chain(remapped).collect::<Vec<_>>().join("\u{1f}"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// One object that is committed.
struct Object {
    program: &'static str,
    /// Of those in `splitter-ebpf/Cargo.toml`.
    profile: &'static str,
    feature: Option<&'static str>,
    committed: &'static str,
}

impl Object {
    fn file_name(&self) -> &'static str {
        self.committed.rsplit('/').next().unwrap_or(self.committed)
    }
}

const OBJECTS: &[Object] = &[
    Object {
        program: "splitter",
        profile: "release",
        feature: None,
        committed: "splitter-agent/crates/datapath/bpf/splitter.o",
    },
    Object {
        program: "splitter",
        profile: "release",
        feature: Some("log"),
        committed: "splitter-agent/crates/datapath/bpf/splitter-log.o",
    },
    Object {
        program: "locate",
        profile: "release",
        feature: None,
        committed: "splitter-agent/crates/datapath/bpf/locate.o",
    },
    Object {
        program: "fabric",
        profile: "release",
        feature: None,
        committed: "splitter-agent/crates/datapath/bpf/fabric.o",
    },
    Object {
        program: "yardstick",
        profile: "release",
        feature: Some("shifted-clock"),
        committed: "benches/bpf/yardstick.o",
    },
    Object {
        program: "balancers",
        profile: "small",
        feature: None,
        committed: "benches/bpf/balancers.o",
    },
];

const RECORD: &str = "splitter-agent/crates/datapath/bpf/toolchain.json";

/// Little-endian, which all that the agent is built for is.
const TARGET: &str = "bpfel-unknown-none";

/// v3 has 32-bit arithmetic and compare-and-exchange (Linux 5.12); misaligned
/// access keeps unaligned reads from becoming a load for each byte.
const FLAGS: &[&str] = &[
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
    "-Ctarget-cpu=v3",
    "-Ctarget-feature=+allows-misaligned-mem-access",
    "--cfg=bpf_target_arch=\"x86_64\"",
];

/// Where the agent's tests look for objects instead of the committed ones.
const OBJECT_DIRECTORY: &str = "SPLITTER_EBPF_OBJECT_DIR";

/// Arguments of `cargo test` that pick the tests which load the objects and pass
/// packets through them.
const LOAD_TEST: &[&str] = &["--test", "it", "programs::"];
