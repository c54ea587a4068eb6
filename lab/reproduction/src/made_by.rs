//! Commits that the runs in a directory were made at, so that results that are kept name the one that made them.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::artefact;

/// The file beside the runs, a commit in a line.
const FILE: &str = "runs/commits";

/// Writes down that runs are made at a commit, as [`artefact`] has it.
///
/// # Errors
///
/// If the file cannot be read or written.
pub fn note(directory: &Path, commit: Option<&str>) -> Result<()> {
    let mut commits = read(directory)?;
    let has_runs = || fs::read_dir(directory.join("runs")).is_ok_and(|mut it| it.next().is_some());
    if commits.is_empty() && has_runs() {
        commits.push("unknown".to_owned());
    }
    let commit = commit.unwrap_or("unknown");
    if commits.iter().any(|it| it == commit) {
        return Ok(());
    }
    commits.push(commit.to_owned());
    let file = directory.join(FILE);
    fs::create_dir_all(directory.join("runs"))
        .and_then(|()| fs::write(&file, commits.join("\n") + "\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Checks that all runs were made at a commit, or at others with the same sources.
///
/// # Errors
///
/// If some were not, or the file cannot be read.
pub fn check(directory: &Path, commit: &str) -> Result<()> {
    check_by(directory, commit, artefact::have_same_sources)
}

fn check_by(directory: &Path, commit: &str, are_same: impl Fn(&str, &str) -> bool) -> Result<()> {
    for other in read(directory)? {
        let is_known = other != "unknown" && !other.ends_with('+');
        if other != commit && !(is_known && are_same(&other, commit)) {
            bail!(
                "runs in {} were made at {other}, whose sources are not those of {commit}: make them again, with another --out",
                directory.join("runs").display()
            );
        }
    }
    Ok(())
}

fn read(directory: &Path) -> Result<Vec<String>> {
    let file = directory.join(FILE);
    if !file.exists() {
        return Ok(Vec::new());
    }
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_other_sources_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let outcome = |commit: &str| check_by(path, commit, |one, other| one[..1] == other[..1]);
        assert!(outcome("a1").is_ok(), "nothing was made before");
        note(path, Some("a1")).unwrap();
        note(path, Some("a1")).unwrap();
        assert_eq!(read(path).unwrap(), ["a1"]);
        assert!(outcome("a1").is_ok());
        assert!(outcome("a2").is_ok(), "pages alone have changed");
        let error = outcome("b1").unwrap_err().to_string();
        assert!(error.contains("were made at a1"), "{error}");
        note(path, Some("a1+")).unwrap();
        assert!(outcome("a1").unwrap_err().to_string().contains("a1+"));
        let other = tempfile::tempdir().unwrap();
        note(other.path(), None).unwrap();
        assert!(check_by(other.path(), "a1", |_, _| true).is_err());
        let earlier = tempfile::tempdir().unwrap();
        fs::create_dir_all(earlier.path().join("runs/tr-large")).unwrap();
        note(earlier.path(), Some("a1")).unwrap();
        assert_eq!(read(earlier.path()).unwrap(), ["unknown", "a1"]);
    }
}
