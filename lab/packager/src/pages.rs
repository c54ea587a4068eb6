//! Manual pages and completions, as the programs themselves print them.

use std::{
    env, fs,
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};

use crate::{File, Release, file::gzip, output};

/// Manual pages of a program and of each of its commands, compressed as distributions do.
///
/// # Errors
/// When the program does not run or writes none.
pub fn manual_pages(release: &Release, program: &str) -> Result<Vec<File>> {
    let place = Scratch::new(program)?;
    output(run(release, program).args(["man", "--out"]).arg(&place.0))?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&place.0)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let page = gzip(&fs::read(entry.path())?, 9)?;
        pages.push(File::new(format!("/usr/share/man/man1/{name}.gz"), page));
    }
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(pages)
}

/// Completions of a program for bash, zsh and fish, where Debian's shells look for them.
///
/// # Errors
/// When the program does not run.
pub fn completions(release: &Release, program: &str) -> Result<Vec<File>> {
    let places = [
        (
            "bash",
            format!("/usr/share/bash-completion/completions/{program}"),
        ),
        (
            "zsh",
            format!("/usr/share/zsh/vendor-completions/_{program}"),
        ),
        (
            "fish",
            format!("/usr/share/fish/vendor_completions.d/{program}.fish"),
        ),
    ];
    let each = places.into_iter().map(|(shell, path)| {
        let script = output(run(release, program).args(["completions", shell]))?;
        Ok(File::new(path, script))
    });
    each.collect()
}

/// Runs a program and returns its output.
///
/// # Errors
/// When it does not run.
pub fn printed(release: &Release, program: &str, arguments: &[&str]) -> Result<String> {
    output(run(release, program).args(arguments))
}

fn run(release: &Release, program: &str) -> Command {
    let path = release.programs.join(program);
    match &release.runner {
        None => Command::new(path),
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(path);
            command
        }
    }
}

/// Tells directories of one process apart.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("pages-{name}-{}-{number}", process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
