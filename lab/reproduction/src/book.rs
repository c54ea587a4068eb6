//! Results that the book keeps: files of each item, and a table of where they come from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{artefact::Artefact, figure::Figure};

/// The table of all items that are kept.
pub const PROVENANCE: &str = "provenance.csv";

/// Provenance of one item's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Id of the item, as in `C1`.
    pub item: String,
    /// Subject of the paper's figure.
    pub title: String,
    /// How it came out.
    pub verdict: String,
    /// The command that made it.
    pub command: String,
    /// Seeds of the random numbers.
    pub seeds: String,
    /// The commit of the sources.
    pub commit: String,
    /// The day on which it was made, in UTC.
    pub date: String,
    /// File of its rows, which items of one experiment share.
    pub rows: String,
}

/// Writes the files of figures to `directory` in place of what is there of these items, and their rows of the
/// [table](PROVENANCE). `seeds` says what random numbers an item was drawn with.
///
/// # Errors
///
/// If the sources have changes or are of no commit, an item that is not among these has its rows in a file that would
/// be replaced, or a file cannot be written.
pub fn keep(
    figures: &[Figure],
    artefact: &Artefact,
    seeds: impl Fn(&str) -> String,
    directory: &Path,
) -> Result<()> {
    let commit = artefact.commit.as_deref().unwrap_or_default();
    ensure!(
        !commit.is_empty() && !commit.ends_with('+'),
        "results are kept of sources that are committed alone, so that they can be made again: commit first"
    );
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    let mut known = read(&directory.join(PROVENANCE))?;
    let made: BTreeSet<&str> = figures.iter().map(|it| it.id).collect();
    for it in known.iter().filter(|it| !made.contains(it.item.as_str())) {
        let owner = it.rows.trim_end_matches(".csv").to_uppercase();
        if owner != it.item && made.contains(owner.as_str()) {
            bail!(
                "the rows of {} are in {}: make both at once",
                it.item,
                it.rows
            );
        }
    }
    known.retain(|it| !made.contains(it.item.as_str()));
    let date = today()?;
    let mut files_of_rows: BTreeMap<Vec<u8>, String> = BTreeMap::new();
    for figure in figures {
        remove(figure.id, directory)?;
        let mut rows = String::new();
        for (number, (name, content)) in figure.files()?.into_iter().enumerate() {
            if number == 0 {
                let shared = files_of_rows.entry(content.clone());
                rows = shared.or_insert_with(|| name.clone()).clone();
                if rows != name {
                    continue;
                }
            }
            let file = directory.join(name);
            fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        known.push(Provenance {
            item: figure.id.to_owned(),
            title: figure.title.to_owned(),
            verdict: figure.verdict().to_string(),
            command: artefact.command.clone(),
            seeds: seeds(figure.id),
            commit: commit.to_owned(),
            date: date.clone(),
            rows,
        });
    }
    known.sort_by_key(|it| order(&it.item));
    let mut csv = csv::Writer::from_writer(Vec::new());
    for it in known {
        csv.serialize(it)?;
    }
    let file = directory.join(PROVENANCE);
    fs::write(&file, csv.into_inner()?).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the table; without a file there are no items.
///
/// # Errors
///
/// If it is there and cannot be read.
pub fn read(file: &Path) -> Result<Vec<Provenance>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let rows = csv::Reader::from_path(file)
        .with_context(|| format!("cannot read {}", file.display()))?
        .into_deserialize()
        .collect::<Result<_, _>>();
    rows.with_context(|| format!("{} is no table of where results come from", file.display()))
}

/// Removes all files of an item.
fn remove(id: &str, directory: &Path) -> Result<()> {
    let id = id.to_lowercase();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(&id);
        if rest.is_some_and(|rest| rest.starts_with(['.', '-'])) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// By paper, and then by number.
fn order(item: &str) -> (String, u32) {
    let (paper, number) = item.split_at(1.min(item.len()));
    (paper.to_owned(), number.parse().unwrap_or(u32::MAX))
}

fn today() -> Result<String> {
    let output = Command::new("date")
        .args(["-u", "+%F"])
        .output()
        .context("cannot run date")?;
    ensure!(output.status.success(), "date failed: {output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Check;

    fn figure(id: &'static str, value: u32) -> Figure {
        Figure {
            id,
            title: "a figure",
            note: String::new(),
            checks: vec![Check::new("x", "1", "1", "1".to_owned(), None)],
            rows: vec![json!({ "a": value })],
            columns: vec!["a"],
            tables: Vec::new(),
            plots: Vec::new(),
        }
    }

    fn artefact(commit: &str) -> Artefact {
        Artefact {
            commit: Some(commit.to_owned()),
            ..Artefact::new("cargo xtask reproduce".to_owned())
        }
    }

    #[test]
    fn items_are_replaced_and_rows_of_one_experiment_are_kept_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let keep = |figures: &[Figure], commit: &str| {
            keep(figures, &artefact(commit), |id| format!("of {id}"), path)
        };
        let names = || {
            let names = fs::read_dir(path)
                .unwrap()
                .map(|it| it.unwrap().file_name());
            let names = names.map(|it| it.into_string().unwrap());
            names
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(" ")
        };
        keep(
            &[figure("T10", 1), figure("T2", 2), figure("T11", 1)],
            "abc",
        )
        .unwrap();
        assert_eq!(
            names(),
            "provenance.csv t10-checks.csv t10.csv t11-checks.csv t2-checks.csv t2.csv"
        );
        let known = read(&path.join(PROVENANCE)).unwrap();
        let items: Vec<_> = known.iter().map(|it| (&*it.item, &*it.rows)).collect();
        assert_eq!(
            items,
            [("T2", "t2.csv"), ("T10", "t10.csv"), ("T11", "t10.csv")]
        );
        assert_eq!(
            (&*known[0].verdict, &*known[0].seeds),
            ("reproduced", "of T2")
        );

        let error = keep(&[figure("T10", 3)], "def").unwrap_err().to_string();
        assert!(error.contains("the rows of T11 are in t10.csv"), "{error}");
        fs::write(path.join("t2-9.svg"), "").unwrap();
        fs::write(path.join("t20.svg"), "").unwrap();
        keep(&[figure("T2", 5)], "def").unwrap();
        assert!(!path.join("t2-9.svg").exists() && path.join("t20.svg").exists());
        assert_eq!(fs::read_to_string(path.join("t2.csv")).unwrap(), "a\n5\n");
        let known = read(&path.join(PROVENANCE)).unwrap();
        let commits: Vec<_> = known.iter().map(|it| &*it.commit).collect();
        assert_eq!(commits, ["def", "abc", "abc"]);
    }

    #[test]
    fn changed_sources_leave_no_results() {
        let directory = tempfile::tempdir().unwrap();
        for commit in ["abc+", ""] {
            let kept = keep(
                &[figure("T2", 1)],
                &artefact(commit),
                |_| String::new(),
                directory.path(),
            );
            assert!(kept.unwrap_err().to_string().contains("commit first"));
        }
        assert!(!directory.path().join("t2.csv").exists());
    }
}
