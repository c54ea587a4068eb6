//! Results of the reproduction, which lie beside its pages as CSV and SVG: blocks of the pages are made of them, and
//! numbers of the text between have to be among them.
//!
//! A block stands between `<!-- results: T1 -->` and `<!-- end of results -->`: an item with its checks and pictures.
//! `verdicts: T1 T2` is a table of items, and `table: t13-table.csv` a table of one file. What no file holds has
//! `<!-- by hand: REASON -->` in front.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{Faults, numbers::Values, pages::Page};

/// Directory of the results, below the root.
const RESULTS: &str = "docs/src/reproduction/results";
/// Pages that may have blocks of them.
const PAGES: &str = "docs/src/reproduction";
/// Letters of a commit that are shown.
const COMMIT: usize = 10;

/// Provenance of one item's files.
#[derive(Clone, Debug, Deserialize)]
struct Provenance {
    item: String,
    title: String,
    verdict: String,
    command: String,
    seeds: String,
    commit: String,
    date: String,
    rows: String,
}

/// All results that are kept.
#[derive(Debug, Default)]
pub struct Results {
    items: BTreeMap<String, Provenance>,
    /// Header and rows of each CSV file.
    tables: BTreeMap<String, Vec<Vec<String>>>,
    /// Title of each picture.
    pictures: BTreeMap<String, String>,
}

impl Results {
    /// Reads what is below a root; without the directory there are none.
    ///
    /// # Errors
    /// When a file cannot be read or is not what its name says.
    pub fn read(root: &Path) -> Result<Self> {
        let directory = root.join(RESULTS);
        let mut results = Self::default();
        if !directory.is_dir() {
            return Ok(results);
        }
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let read = || match path.extension().and_then(|it| it.to_str()) {
                Some("csv") => Ok((Some(records(&path)?), None)),
                Some("svg") => Ok((None, Some(title(&path)?))),
                _ => bail!("it is neither CSV nor SVG"),
            };
            let (table, picture) = read().with_context(|| format!("in {RESULTS}/{name}"))?;
            results.tables.extend(table.map(|it| (name.clone(), it)));
            results.pictures.extend(picture.map(|it| (name, it)));
        }
        let provenance = directory.join("provenance.csv");
        let mut csv = csv::Reader::from_path(&provenance)
            .with_context(|| format!("cannot read {}", provenance.display()))?;
        for row in csv.deserialize() {
            let it: Provenance = row.context("in provenance.csv")?;
            results.items.insert(it.item.clone(), it);
        }
        results.tables.remove("provenance.csv");
        Ok(results)
    }

    /// A page's text with its blocks as the results make them.
    ///
    /// # Errors
    /// When a block has no end, or is of something that is not there.
    pub fn expand(&self, text: &str) -> Result<String> {
        let mut expanded = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            expanded += line;
            expanded.push('\n');
            let Some((kind, of)) = block(line) else {
                continue;
            };
            let indent = &line[..line.len() - line.trim_start().len()];
            let made = match kind {
                "verdicts" => self.verdicts(of)?,
                "table" => self.table(of)?,
                _ => self.item(of)?,
            };
            for line in made.lines() {
                if !line.is_empty() {
                    expanded += indent;
                }
                expanded += line;
                expanded.push('\n');
            }
            let end = format!("<!-- end of {kind} -->");
            let Some(end) = lines.by_ref().find(|it| it.trim() == end) else {
                bail!("{line:?} has no {end:?}");
            };
            expanded += end;
            expanded.push('\n');
        }
        Ok(expanded)
    }

    fn of(&self, item: &str) -> Result<&Provenance> {
        self.items
            .get(item)
            .with_context(|| format!("there are no results of {item}"))
    }

    fn verdicts(&self, items: &str) -> Result<String> {
        let mut text = "\n| item | what | verdict |\n|---|---|---|\n".to_owned();
        for item in items.split_whitespace() {
            let it = self.of(item)?;
            text += &format!("| {item} | {} | {} |\n", it.title, it.verdict);
        }
        Ok(text + "\n")
    }

    fn table(&self, file: &str) -> Result<String> {
        let rows = self.tables.get(file);
        let rows = rows.with_context(|| format!("there is no {RESULTS}/{file}"))?;
        Ok(format!("\n{}\n", markdown(rows)))
    }

    fn item(&self, item: &str) -> Result<String> {
        let it = self.of(item)?;
        let id = item.to_lowercase();
        let checks = format!("{id}-checks.csv");
        let rows = self.tables.get(&checks);
        let rows = rows.with_context(|| format!("there is no {RESULTS}/{checks}"))?;
        let commit = it.commit.get(..COMMIT).unwrap_or(&it.commit);
        let mut text = format!(
            "\n### {item}: {}\n\n**{}**: `{}`, seeds {}, commit `{commit}`, {}; [rows](results/{}), [checks](results/{checks}).\n\n",
            it.title, it.verdict, it.command, it.seeds, it.date, it.rows,
        );
        if rows.len() > 1 {
            let short = rows.iter().enumerate().map(|(number, row)| {
                let mut row = row.clone();
                if let Some(verdict) = row.last_mut() {
                    *verdict = if number == 0 {
                        String::new()
                    } else {
                        shortened(verdict)
                    };
                }
                row
            });
            text += &markdown(&short.collect::<Vec<_>>());
            text.push('\n');
        }
        let mine = |name: &&String| {
            name.strip_prefix(&id)
                .is_some_and(|it| it.starts_with(['.', '-']))
        };
        let mut pictures: Vec<&String> = self.pictures.keys().filter(mine).collect();
        // The paper's beside ours comes first.
        pictures.sort_by_key(|it| (!it.ends_with("-paper.svg"), it.len(), (*it).clone()));
        for name in pictures {
            let what = match name.ends_with("-paper.svg") {
                true => format!("{item}: what the paper says beside ours."),
                false => format!("{item}: {}.", self.pictures[name]),
            };
            text += &format!("![{what}](results/{name})\n\n");
        }
        Ok(text)
    }

    /// Numbers that checks and tables of an item have.
    fn values(&self, item: &str) -> Values {
        let id = item.to_lowercase();
        let mut values = Values::default();
        for (name, rows) in &self.tables {
            let is_mine = name.strip_prefix(&id).is_some_and(|it| it.starts_with("-"));
            if is_mine {
                rows.iter().flatten().for_each(|cell| values.add(cell));
            }
        }
        values
    }
}

/// Writes the blocks of all pages; returns those that changed.
///
/// # Errors
/// When a block cannot be made or a page cannot be written.
pub fn write(root: &Path, pages: &[Page]) -> Result<Vec<String>> {
    let results = Results::read(root)?;
    let mut changed = Vec::new();
    for page in pages.iter().filter(|it| it.path.starts_with(PAGES)) {
        let path = page.path.display().to_string();
        let text = results
            .expand(&page.text)
            .with_context(|| format!("in {path}"))?;
        if text != page.text {
            fs::write(root.join(&page.path), text)
                .with_context(|| format!("cannot write {path}"))?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Checks that blocks are what the results make, that each item is on a page, and that numbers of the text are among
/// the results.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path, pages: &[Page]) -> Result<(String, Faults)> {
    let results = Results::read(root)?;
    let (mut faults, mut numbers) = (Faults::new(), 0);
    let mut shown: BTreeSet<(String, String)> = BTreeSet::new();
    for page in pages.iter().filter(|it| it.path.starts_with(PAGES)) {
        let place = page.path.display();
        match results.expand(&page.text) {
            Err(error) => faults.push(format!("{place}: {error:#}")),
            Ok(text) if text != page.text => faults.push(format!(
                "{place}: it is not what {RESULTS} makes; `cargo xtask docs --figures` writes it"
            )),
            Ok(_) => {}
        }
        let blocks: Vec<(&str, &str)> = page.text.lines().filter_map(block).collect();
        for (kind, of) in &blocks {
            shown.extend(
                of.split_whitespace()
                    .map(|it| ((*kind).to_owned(), it.to_owned())),
            );
        }
        let items: Vec<&str> = blocks
            .iter()
            .filter(|it| it.0 == "results")
            .map(|it| it.1)
            .collect();
        if !items.is_empty() {
            let (count, more) = results.check_text(page, &items);
            numbers += count;
            faults.extend(more);
        }
    }
    for item in results.items.keys() {
        for kind in ["verdicts", "results"] {
            if !shown.contains(&(kind.to_owned(), item.clone())) {
                faults.push(format!(
                    "{RESULTS}: no page has {item} in a block of {kind}"
                ));
            }
        }
    }
    faults.extend(results.left_over());
    let summary = format!(
        "{} items, {numbers} numbers of the text",
        results.items.len()
    );
    Ok((summary, faults))
}

impl Results {
    /// Files that belong to no item.
    fn left_over(&self) -> Faults {
        let is_known = |name: &str| {
            let owner = name.split(['.', '-']).next().unwrap_or_default();
            self.items.keys().any(|it| it.eq_ignore_ascii_case(owner))
        };
        let names = self.tables.keys().chain(self.pictures.keys());
        let strays = names.filter(|it| !is_known(it));
        strays
            .map(|it| format!("{RESULTS}/{it}: provenance.csv has no such item"))
            .collect()
    }

    /// Holds the text of a page between its blocks against the items that its paragraphs name, or all of the page.
    fn check_text(&self, page: &Page, items: &[&str]) -> (usize, Faults) {
        let all: BTreeMap<&str, Values> = items.iter().map(|it| (*it, self.values(it))).collect();
        let (mut count, mut faults) = (0, Faults::new());
        for Paragraph { line, text } in paragraphs(&page.text) {
            let named: Vec<&str> = words(&text).filter(|it| all.contains_key(it)).collect();
            let sought = if named.is_empty() { items } else { &named };
            for number in crate::numbers::claims(&text) {
                count += 1;
                if !sought.iter().any(|it| all[it].have(&number)) {
                    faults.push(format!(
                        "{}: {RESULTS} has no {number} of {}",
                        page.place(line),
                        sought.join(", ")
                    ));
                }
            }
        }
        (count, faults)
    }
}

/// Text between blank lines that is neither in a block, nor code, nor measured by hand.
struct Paragraph {
    line: usize,
    text: String,
}

fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut end, mut is_open, mut is_exempt) = (None, false, false);
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim();
        if let Some(mark) = &end {
            if trimmed == mark {
                end = None;
            }
        } else if let Some((kind, _)) = block(text) {
            end = Some(format!("<!-- end of {kind} -->"));
            is_open = false;
        } else if trimmed.starts_with("```") {
            end = Some("```".to_owned());
            is_open = false;
        } else if trimmed.starts_with("<!-- by hand: ") {
            (is_open, is_exempt) = (false, true);
        } else if trimmed.is_empty() {
            // A comment may have a blank line behind it.
            is_exempt &= !is_open;
            is_open = false;
        } else if is_open {
            if !is_exempt && let Some(last) = found.last_mut() {
                last.text.push('\n');
                last.text += text;
            }
        } else {
            is_open = true;
            if !is_exempt {
                found.push(Paragraph {
                    line,
                    text: text.to_owned(),
                });
            }
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !it.is_alphanumeric())
}

/// Kind and subject of a block that begins with this line.
fn block(line: &str) -> Option<(&str, &str)> {
    let inside = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let (kind, of) = inside.split_once(": ")?;
    ["results", "verdicts", "table"]
        .contains(&kind)
        .then_some((kind, of))
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

fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|it| it.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            text += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    text
}

fn records(path: &Path) -> Result<Vec<Vec<String>>> {
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

#[cfg(test)]
mod tests;
