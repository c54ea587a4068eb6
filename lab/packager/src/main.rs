//! `packager`: writes the packages of one target from programs that have been built for it.
//! `cargo xtask dist` builds them and runs it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use packager::{Release, Target};

/// Write packages, tarballs, bills of materials and checksums of programs that are built.
#[derive(Parser)]
#[command(name = "packager")]
struct Arguments {
    /// The root of the source tree.
    #[arg(long)]
    root: PathBuf,
    /// Directory of the stripped programs and of their `.debug` files.
    #[arg(long)]
    programs: PathBuf,
    /// Directory that everything is written to.
    #[arg(long)]
    out: PathBuf,
    /// The target that the programs were built for, such as x86_64-unknown-linux-musl.
    #[arg(long)]
    target: Target,
    /// Program that runs programs of the target, such as qemu-aarch64-static.
    #[arg(long)]
    runner: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let release = Release {
        source_date: packager::source_date(&arguments.root)?,
        root: arguments.root,
        programs: arguments.programs,
        target: arguments.target,
        runner: arguments.runner,
        compression: 9,
        named_by_tests: &[],
    };
    for (file, bytes) in release.write(&arguments.out)? {
        println!("{}: {:.2} MB", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}
