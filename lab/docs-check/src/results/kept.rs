//! Files that one directory keeps: of each item its rows, checks, tables and pictures, and where they come from.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::PAGES;
use crate::{Faults, numbers::Values};

/// Letters of a commit that are shown.
const COMMIT: usize = 10;
/// The columns of a table of checks, of which the last is the verdict.
const COLUMNS: usize = 5;

/// Provenance of one item's files.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Provenance {
    pub(super) item: String,
    pub(super) title: String,
    pub(super) verdict: String,
    command: String,
    seeds: String,
    commit: String,
    date: String,
    rows: String,
}

/// A line of a table of checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) paper: String,
    pub(super) band: String,
    pub(super) ours: String,
    /// Without its reason.
    pub(super) verdict: String,
}

/// All that a directory keeps.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Name of the directory, which lies beside the pages.
    pub(super) name: String,
    pub(super) items: BTreeMap<String, Provenance>,
    /// Header and rows of each CSV file.
    pub(super) tables: BTreeMap<String, Vec<Vec<String>>>,
    /// Title of each picture.
    pub(super) pictures: BTreeMap<String, String>,
}

impl Kept {
    /// Reads a directory beside the pages.
    pub(super) fn read(root: &Path, name: &str) -> Result<Self> {
        let directory = root.join(PAGES).join(name);
        let mut kept = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        let place = |file: &str| format!("in {PAGES}/{name}/{file}");
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let read = || match path.extension().and_then(|it| it.to_str()) {
                Some("csv") => Ok((Some(records(&path)?), None)),
                Some("svg") => Ok((None, Some(title(&path)?))),
                _ => bail!("it is neither CSV nor SVG"),
            };
            let (table, picture) = read().with_context(|| place(&file))?;
            kept.tables.extend(table.map(|it| (file.to_string(), it)));
            kept.pictures
                .extend(picture.map(|it| (file.to_string(), it)));
        }
        let provenance = directory.join("provenance.csv");
        let mut csv = csv::Reader::from_path(&provenance)
            .with_context(|| format!("cannot read {}", provenance.display()))?;
        for row in csv.deserialize() {
            let it: Provenance = row.with_context(|| place("provenance.csv"))?;
            kept.items.insert(it.item.clone(), it);
        }
        kept.tables.remove("provenance.csv");
        Ok(kept)
    }

    /// Its directory below the root.
    pub(super) fn path(&self) -> String {
        format!("{PAGES}/{}", self.name)
    }

    pub(super) fn checks(&self, item: &str) -> Result<Vec<Check>> {
        let file = checks_file(item);
        let rows = self.tables.get(&file);
        let rows = rows.with_context(|| format!("there is no {}/{file}", self.path()))?;
        let check = |row: &Vec<String>| {
            ensure!(
                row.len() == COLUMNS,
                "{}/{file} has not {COLUMNS} columns",
                self.path()
            );
            Ok(Check {
                name: row[0].clone(),
                paper: row[1].clone(),
                band: row[2].clone(),
                ours: row[3].clone(),
                verdict: shortened(&row[4]),
            })
        };
        rows.iter().skip(1).map(check).collect()
    }

    /// Names of an item's pictures, the one of the paper's values beside ours first.
    pub(super) fn pictures_of(&self, item: &str) -> Vec<&String> {
        let mine = |name: &&String| is_of(name, item, &['.', '-']);
        let mut pictures: Vec<&String> = self.pictures.keys().filter(mine).collect();
        pictures.sort_by_key(|it| (!is_paper(it), it.len(), (*it).clone()));
        pictures
    }

    /// Adds the numbers that checks and tables of an item have.
    pub(super) fn add_values(&self, item: &str, values: &mut Values) {
        for (name, rows) in &self.tables {
            if is_of(name, item, &['-']) {
                rows.iter().flatten().for_each(|cell| values.add(cell));
            }
        }
    }

    /// Files that belong to no item.
    pub(super) fn left_over(&self) -> Faults {
        let is_known = |name: &str| {
            let owner = name.split(['.', '-']).next().unwrap_or_default();
            self.items.keys().any(|it| it.eq_ignore_ascii_case(owner))
        };
        let names = self.tables.keys().chain(self.pictures.keys());
        let strays = names.filter(|it| !is_known(it));
        strays
            .map(|it| format!("{}/{it}: provenance.csv has no such item", self.path()))
            .collect()
    }
}

impl Check {
    /// Its cells in a table, in the order of the file's columns.
    pub(super) fn cells(&self) -> Vec<String> {
        let cells = [
            &self.name,
            &self.paper,
            &self.band,
            &self.ours,
            &self.verdict,
        ];
        cells.map(String::clone).to_vec()
    }
}

impl Provenance {
    /// How it came out and what made it, with links to the files of a directory.
    pub(super) fn statement(&self, directory: &str) -> String {
        let checks = checks_file(&self.item);
        let Self {
            verdict,
            command,
            seeds,
            date,
            rows,
            ..
        } = self;
        let commit = shown_commit(&self.commit);
        format!(
            "**{verdict}**: `{command}`, seeds {seeds}, commit `{commit}`, {date}; [rows]({directory}/{rows}), [checks]({directory}/{checks})"
        )
    }

    /// The options of its command, which tell sets of results apart.
    pub(super) fn options(&self) -> String {
        let words = self.command.split(' ');
        let options: Vec<&str> = words.skip_while(|it| !it.starts_with("--")).collect();
        match options.is_empty() {
            true => "no options".to_owned(),
            false => format!("`{}`", options.join(" ")),
        }
    }
}

/// The letters of a commit that are shown.
pub(crate) fn shown_commit(commit: &str) -> &str {
    commit.get(..COMMIT).unwrap_or(commit)
}

pub(super) fn is_paper(picture: &str) -> bool {
    picture.ends_with("-paper.svg")
}

fn checks_file(item: &str) -> String {
    format!("{}-checks.csv", item.to_lowercase())
}

fn is_of(file: &str, item: &str, behind: &[char]) -> bool {
    let rest = file.strip_prefix(&item.to_lowercase());
    rest.is_some_and(|it| it.starts_with(behind))
}

/// `outside` for `misses: 0.1 too much`; what depends on something says on what.
fn shortened(verdict: &str) -> String {
    match verdict.split_once(": ") {
        // Results that were kept before have the word of then.
        Some(("misses", _)) => "outside".to_owned(),
        Some(("depends on load", _)) | None => verdict.to_owned(),
        Some((word, _)) => word.to_owned(),
    }
}

pub(crate) fn records(path: &Path) -> Result<Vec<Vec<String>>> {
    let mut csv = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_path(path)?;
    let rows = csv
        .records()
        .map(|row| Ok(row?.iter().map(str::to_owned).collect()));
    rows.collect()
}

/// The picture's title, for those who do not see it.
fn title(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path)?;
    let picture = roxmltree::Document::parse(&text)?;
    let title = picture.root_element().attribute("aria-label");
    Ok(title.context("it has no aria-label")?.to_owned())
}
