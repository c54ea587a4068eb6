//! `count-codec`: how many instructions of AArch64 a message takes to encode and to decode, which no noise
//! touches and no such processor is needed for.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::{
    bench,
    command::{self, Run},
    dist,
    project::Project,
};

const TARGET: &str = "aarch64-unknown-linux-musl";

/// As results name them, and as the program does.
const CODECS: [(&str, &str); 3] = [
    ("default", "default"),
    ("mds", "mds"),
    (PEER, "reed-solomon-simd"),
];
const PEER: &str = "reed_solomon_simd";

/// What is counted, and the source symbols that are lost of 64: about 5 and 30 %.
const WORK: [(&str, &str); 3] = [("encode", "0"), ("decode_5", "3"), ("decode_30", "19")];

/// How often the work is done: the counts' difference is that of two times.
const TIMES: [&str; 2] = ["1", "2"];

/// Instructions by codec and work.
type Counts = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

pub(crate) fn task(project: &Project, arguments: &bench::Arguments) -> Result<ExitCode> {
    let emulator = dist::emulator("aarch64")?;
    let program = build(project)?;
    let one_at_a_time = one_at_a_time(&emulator)?;
    let mut counts = Counts::new();
    for (codec, argument) in CODECS {
        for (work, lost) in WORK {
            let count = |times| {
                let run = Run::new(&emulator)
                    .args([one_at_a_time, "-d", "exec,nochain", "-D", "/dev/stdout"])
                    .args([&*program, argument, lost, times]);
                executed(run)
            };
            let [fewer, more] = TIMES;
            let instructions = count(more)?.checked_sub(count(fewer)?);
            let instructions = instructions.context("more work took fewer instructions")?;
            counts.entry(codec).or_default().insert(work, instructions);
        }
    }
    arguments.print(&counts, table)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the program for the other processor, and returns where it is.
fn build(project: &Project) -> Result<String> {
    dist::sysroot_with(TARGET)?;
    command::cargo()
        .args(["build", "--release", "--locked", "--target", TARGET])
        .arg("--package=codec-count")
        // It comes with the compiler, links for any processor, and needs no C library for this target.
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld")
        .current_dir(&project.root)
        .run()?;
    let program = project.target.join(TARGET).join("release/codec-count");
    let program = program
        .to_str()
        .context("the target directory's name is no text")?;
    Ok(program.to_owned())
}

/// The emulator's option by which it says of each instruction that it is executed, and not of each block.
fn one_at_a_time(emulator: &Path) -> Result<&'static str> {
    let help = Run::new(emulator).arg("-help").read()?;
    Ok(match help.contains("one-insn-per-tb") {
        true => "-one-insn-per-tb",
        // Before QEMU 8.1.
        false => "-singlestep",
    })
}

fn executed(mut run: Run) -> Result<u64> {
    let mut executed = 0;
    let status = run.stream(|line| executed += u64::from(line.starts_with("Trace ")))?;
    run.check(status)?;
    ensure!(executed > 0, "`{run}` told of no instruction");
    Ok(executed)
}

fn table(counts: &Counts) -> String {
    let mut table = format!("{:20}", "instructions");
    table.extend(WORK.map(|(work, _)| format!("{work:>24}")));
    for (codec, of_codec) in counts {
        table += &format!("\n{codec:20}");
        for (work, _) in WORK {
            let count = of_codec[work];
            let part = count as f64 / counts[PEER][work] as f64;
            table += &format!("{count:>15} ({part:>4.2} x)");
        }
    }
    table + "\n"
}
