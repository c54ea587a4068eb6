//! `dist`: the products' programs as they are shipped, and the packages that they are shipped in.
//!
//! Programs are linked statically, so that one serves every distribution, and carry no path of the
//! machine that built them: equal sources make equal packages in any directory. Each has its line
//! tables in a file next to it: `cargo build --release` drops them, and compilers can put most of
//! what debuggers read into a file of its own (`split-debuginfo`), but never the line tables. The
//! stripped program names that file, and a backtrace finds it in its own directory or in
//! /usr/lib/debug.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use crate::{
    command::{self, Run},
    elf,
    project::{Project, cargo_home, find_program},
};

/// Packages with a program for users, and the program.
const PROGRAMS: [(&str, &str); 4] = [
    ("splitter-agent", "splitter"),
    ("cloudburst-cli", "cloudburst"),
    ("flow-netsim", "netsim"),
    ("splitter-demo", "splitter-demo"),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Build for this target: x86_64-unknown-linux-musl or aarch64-unknown-linux-musl; without it
    /// the one of this machine's processors.
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Directory that packages are written to; without it `dist/TARGET/packages` in the target directory.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

fn own_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let target = &arguments.target.clone().unwrap_or_else(own_target);
    let place = project.target.join("dist").join(target);
    let programs = place.join("programs");
    for program in build(project, target, &programs)? {
        println!("{program}");
    }
    let out = arguments.out.clone();
    pack(
        project,
        target,
        &programs,
        &out.unwrap_or_else(|| place.join("packages")),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the last commit twice, in directories whose names differ in length, and compares all packages.
pub(crate) fn check_reproducible(project: &Project) -> Result<()> {
    let place = project.target.join("reproducible");
    if place.exists() {
        fs::remove_dir_all(&place).context("cannot remove what an earlier run has left")?;
    }
    let mut sums = Vec::new();
    for directory in ["one", "a/directory/further/down"] {
        let root = place.join(directory);
        Run::new("git")
            .args(["clone", "--quiet", "--shared"])
            .args([&project.root, &root])
            .run()?;
        let target = root.join("target");
        let clone = Project { root, target };
        let programs = clone.target.join("programs");
        build(&clone, &own_target(), &programs)?;
        let out = clone.target.join("packages");
        pack(&clone, &own_target(), &programs, &out)?;
        sums.push(fs::read_to_string(
            out.join(format!("SHA256SUMS-{}", own_target())),
        )?);
        // A build takes some gigabytes, and the sums say all that is asked.
        fs::remove_dir_all(&clone.target).context("cannot remove a build")?;
    }
    let differ = differing_lines(&sums[0], &sums[1]);
    if !differ.is_empty() {
        bail!("packages of the same commit differ by directory: {differ:#?}");
    }
    fs::remove_dir_all(&place).context("cannot remove the builds")
}

/// Lists the lines that only one of two texts has, whichever that is.
fn differing_lines<'a>(one: &'a str, other: &'a str) -> Vec<&'a str> {
    let [one, other] = [one, other].map(|it| it.lines().collect::<BTreeSet<_>>());
    one.symmetric_difference(&other).copied().collect()
}

/// Builds all programs for a target into a directory and returns a line about each.
pub(crate) fn build(project: &Project, target: &str, out: &Path) -> Result<Vec<String>> {
    let sysroot = sysroot_with(target)?;
    // Where crates lie is in the flags below.
    command::cargo()
        .args(["fetch", "--locked", "--target", target])
        .current_dir(&project.root)
        .run()?;
    let compiler = c_compiler_of(target)?;
    let linker = format!(
        "CARGO_TARGET_{}_LINKER",
        target.to_uppercase().replace('-', "_")
    );
    command::cargo()
        .args(["build", "--profile=dist", "--locked", "--target", target])
        .args(PROGRAMS.map(|(package, _)| format!("--package={package}")))
        .args(PROGRAMS.map(|(_, program)| format!("--bin={program}")))
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(project, &sysroot)?)
        // It comes with the compiler, links for any processor, and needs no C library for these targets.
        .env(&linker, "rust-lld")
        .env(&format!("CC_{}", target.replace('-', "_")), compiler)
        .current_dir(&project.root)
        .run()?;
    fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory {}", out.display()))?;
    let built = project.target.join(target).join("dist");
    let objcopy = Objcopy::find(sysroot)?;
    PROGRAMS
        .iter()
        .map(|(_, program)| split(&objcopy, &built.join(program), &out.join(program)))
        .collect()
}

/// Finds the compiler's own directory, which has to have the target's library.
pub(crate) fn sysroot_with(target: &str) -> Result<PathBuf> {
    let sysroot = Run::new("rustc").args(["--print", "sysroot"]).read()?;
    let sysroot = PathBuf::from(sysroot.trim());
    let library = sysroot.join("lib/rustlib").join(target).join("lib");
    if !library.is_dir() {
        bail!("the compiler lacks the target {target}; add it with `rustup target add {target}`");
    }
    Ok(sysroot)
}

/// Finds what runs programs of another processor.
pub(crate) fn emulator(processor: &str) -> Result<PathBuf> {
    let names = ["-static", ""].map(|ending| format!("qemu-{processor}{ending}"));
    let found = names.iter().find_map(|name| find_program(name));
    found.with_context(|| {
        format!("running programs of {processor} takes qemu-user-static; install it")
    })
}

/// What compiles the C of ring, which has no library to link, and Debian's packages that it and the headers
/// come from.
fn c_compiler(target: &str) -> (&'static str, &'static str) {
    match target.starts_with("aarch64") && std::env::consts::ARCH != "aarch64" {
        true => (
            "aarch64-linux-gnu-gcc",
            "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
        ),
        false => ("musl-gcc", "musl-tools"),
    }
}

/// Finds what compiles the C of ring, with headers.
pub(crate) fn c_compiler_of(target: &str) -> Result<&'static str> {
    let (compiler, packages) = c_compiler(target);
    if !has_headers(compiler) {
        bail!(
            "compiling ring for {target} takes {compiler} and headers of a C library; install {packages}"
        );
    }
    Ok(compiler)
}

/// Whether a compiler is there with headers, which a cross compiler's package does not bring by itself.
fn has_headers(compiler: &str) -> bool {
    let preprocess = ["-E", "-x", "c", "-include", "stdlib.h", "/dev/null"];
    Run::new(compiler).args(preprocess).succeeds()
}

/// Keeps paths of this machine out of the programs, in the form of `CARGO_ENCODED_RUSTFLAGS`.
fn rust_flags(project: &Project, sysroot: &Path) -> Result<String> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![
        remap(&project.root, "/usr/src/flow-prioritisation"),
        remap(&sysroot.join("lib/rustlib/src/rust"), "/usr/src/rust"),
    ];
    // A mirror of the registry has another directory, and the same crates.
    let registries = cargo_home()?.join("registry/src");
    for registry in fs::read_dir(&registries).into_iter().flatten().flatten() {
        flags.push(remap(&registry.path(), "/usr/src/crates"));
    }
    Ok(flags.join("\u{1f}"))
}

/// The compiler's own copy, which knows the files of all processors.
struct Objcopy {
    program: PathBuf,
    libraries: PathBuf,
}

impl Objcopy {
    fn find(sysroot: PathBuf) -> Result<Self> {
        let targets = sysroot.join("lib/rustlib");
        let targets = fs::read_dir(targets).context("the compiler has no tools")?;
        let copies = targets
            .flatten()
            .map(|it| it.path().join("bin/rust-objcopy"));
        let mut copies = copies.filter(|it| it.is_file());
        Ok(Self {
            program: copies
                .next()
                .context("the compiler brings no rust-objcopy")?,
            libraries: sysroot.join("lib"),
        })
    }

    fn run(&self) -> Run {
        Run::new(&self.program).env("LD_LIBRARY_PATH", &self.libraries)
    }
}

/// Writes packages of built programs. Those of other processors are run by qemu, for their pages.
fn pack(project: &Project, target: &str, programs: &Path, out: &Path) -> Result<()> {
    let processor = target.split('-').next().unwrap_or_default();
    let mut packager = command::cargo()
        .args([
            "run",
            "--quiet",
            "--release",
            "--locked",
            "--package=packager",
            "--",
        ])
        .args(["--target", target])
        .arg("--root")
        .arg(&project.root)
        .arg("--programs")
        .arg(programs)
        .arg("--out")
        .arg(out);
    if processor != std::env::consts::ARCH {
        // Their manual pages are what they print.
        packager = packager.arg("--runner").arg(emulator(processor)?);
    }
    let mut packager = packager.current_dir(&project.root);
    let status = packager.status()?;
    packager.check(status)
}

/// Writes a program without debug information, and a file with that next to it.
fn split(objcopy: &Objcopy, built: &Path, program: &Path) -> Result<String> {
    let debug = program.with_extension("debug");
    objcopy
        .run()
        .arg("--only-keep-debug")
        .args([built, &debug])
        .run()?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    objcopy
        .run()
        .arg("--strip-all")
        .arg(link)
        .args([built, program])
        .run()?;
    let lacks = |file: &Path, section: &str| -> Result<bool> {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(!elf::missing(&content, &[section])?.is_empty())
    };
    if lacks(program, ".gnu_debuglink")? || lacks(&debug, ".debug_line")? {
        bail!("{} was built without line tables", built.display());
    }
    let megabytes = |file: &Path| -> Result<f64> { Ok(fs::metadata(file)?.len() as f64 / 1e6) };
    Ok(format!(
        "{}: {:.1} MB, and {:.1} MB of line tables and symbols in {}",
        program.display(),
        megabytes(program)?,
        megabytes(&debug)?,
        debug.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::{c_compiler, differing_lines, has_headers};

    #[test]
    fn compiler_is_there_with_headers_or_not_at_all() {
        // It is compiled with, where these tests are.
        assert!(has_headers("cc"));
        assert!(!has_headers("cc-of-no-processor"));
        let (_, packages) = c_compiler("aarch64-unknown-linux-musl");
        assert!(std::env::consts::ARCH == "aarch64" || packages.contains("libc6-dev"));
    }

    #[test]
    fn line_that_one_list_lacks_at_its_end_is_noticed() {
        assert_eq!(differing_lines("a\nb\n", "b\na\n"), [""; 0]);
        assert_eq!(differing_lines("a\nb\n", "a\n"), ["b"]);
        assert_eq!(differing_lines("a\n", "a\nb\n"), ["b"]);
        assert_eq!(differing_lines("a\n", "c\n"), ["a", "c"]);
    }
}
