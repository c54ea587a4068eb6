//! The shared libraries that a program loads, for a machine that has none.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::Run;

/// Where they lie in the machine.
pub(super) const DIRECTORY: &str = "lib";
/// Where programs look for what loads them, by its whole path.
pub(super) const LOADER_DIRECTORY: &str = "lib64";
/// On the kernel's command line: what it does not know is in the environment of the first process.
pub(super) const FOUND_BY: &str = "LD_LIBRARY_PATH=/lib";

/// The libraries of a program: path in the machine, and here. None of one that is linked statically.
pub(super) fn of(program: &Path) -> Result<Vec<(String, PathBuf)>> {
    // Says by an error that there are none.
    let told = Run::new("ldd").arg(program).read().unwrap_or_default();
    Ok(told.lines().filter_map(library).collect())
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)`, or the loader alone, `/lib64/ld-linux.so.2 (0x1)`;
/// what the kernel provides has no path.
fn library(line: &str) -> Option<(String, PathBuf)> {
    let (named, _address) = line.trim().rsplit_once(" (0x")?;
    match named.split_once(" => ") {
        Some((name, path)) => Some((format!("{DIRECTORY}/{name}"), path.into())),
        None => {
            let inside = named.strip_prefix('/')?;
            Some((inside.to_owned(), named.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_what_loads_them_are_found() {
        let found = |line| library(line).map(|(inside, here)| (inside, here.display().to_string()));
        let named = |inside: &str, here: &str| Some((inside.to_owned(), here.to_owned()));
        assert_eq!(
            found("\tlibc.so.6 => /usr/lib/libc.so.6 (0x00007f)"),
            named("lib/libc.so.6", "/usr/lib/libc.so.6")
        );
        assert_eq!(
            found("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"),
            named("lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(found("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(found("\tstatically linked"), None);
    }
}
