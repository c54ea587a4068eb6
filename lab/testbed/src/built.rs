//! Programs of this workspace that a test runs and Cargo does not build for it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Checks that a program is not older than what it is made of, by what Cargo has written next to it. Where there is
/// no word about that, such as beside an installed program, it is taken to be current.
///
/// # Panics
/// If it is older, with what to build: a test of yesterday's program says nothing about today's.
pub fn assert_current(program: &Path, package: &str) {
    if let Some(newer) = newer_source(program) {
        panic!(
            "{} is older than {}: build it with `cargo build -p {package}`",
            program.display(),
            newer.display()
        );
    }
}

/// The first of the files that a program is made of that has changed since, or is not there any more.
fn newer_source(program: &Path) -> Option<PathBuf> {
    let built = modified(program)?;
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let mut sources = sources(&list).into_iter();
    sources.find(|source| modified(source).is_none_or(|it| it > built))
}

fn modified(file: &Path) -> Option<std::time::SystemTime> {
    File::open(file).ok()?.metadata().ok()?.modified().ok()
}

/// The files behind the colon of a rule for make, as Cargo writes it: a space in a name has a backslash before it.
fn sources(rule: &str) -> Vec<PathBuf> {
    const SPACE: char = '\0';
    let line = rule.lines().next().unwrap_or_default();
    let (_, files) = line.split_once(": ").unwrap_or_default();
    let files = files.replace("\\ ", &SPACE.to_string());
    let names = files.split_whitespace();
    names
        .map(|it| PathBuf::from(it.replace(SPACE, " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn program_is_current_until_a_source_of_it_changes_or_goes() {
        let directory = TempDir::new().expect("a directory");
        let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let write = |name: &str, seconds: u64, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a file");
            let file = File::options()
                .append(true)
                .open(&path)
                .expect("it is there");
            let at = begin + Duration::from_secs(seconds);
            file.set_modified(at).expect("it is ours");
            path
        };
        let program = write("program", 5, "");
        assert_eq!(newer_source(&program), None);
        let first = write("first.rs", 5, "");
        let second = write("the second.rs", 4, "");
        let escaped = second.display().to_string().replace(' ', "\\ ");
        let rule = format!("{}: {} {escaped}\n", program.display(), first.display());
        write("program.d", 0, &rule);
        assert_eq!(newer_source(&program), None);
        write("the second.rs", 6, "");
        assert_eq!(newer_source(&program), Some(second));
        fs::remove_file(&first).expect("it is ours");
        assert_eq!(newer_source(&program), Some(first));
    }
}
