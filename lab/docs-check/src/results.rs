//! Results of the reproduction, which lie beside its pages as CSV and SVG: blocks of the pages are made of them, and
//! numbers of the text between have to be among them.
//!
//! A block stands between `<!-- results: T1 -->` and `<!-- end of results -->`: an item with its checks and pictures.
//! `verdicts: T1 T2` is a table of items, and `table: t13-table.csv` a table of one file. What no file holds has
//! `<!-- by hand: REASON -->` in front.
//!
//! `results` has each item once. Directories beside it that are called `results-NAME` have some of them once more, from
//! other runs, as of more flows: their checks stand in columns beside the others, and `table: results-NAME/t13-table.csv`
//! is of theirs. `packets: all` is where figures on real packets come from, which some items have a column of.

pub(crate) mod kept;
pub(crate) mod packets;
mod paragraphs;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    kept::{Check, Kept, Provenance, is_paper},
    packets::Packets,
    paragraphs::{Paragraph, paragraphs, words},
};
use crate::{Faults, numbers::Values, pages::Page};

/// Pages that may have blocks of results.
const PAGES: &str = "docs/src/reproduction";
/// Directory of the results, beside the pages.
const RESULTS: &str = "results";
/// What names of directories with further results begin with.
const FURTHER: &str = "results-";

/// All results that are kept.
#[derive(Debug, Default)]
pub struct Results {
    kept: Kept,
    /// Of some items once more, by name of the directory.
    further: BTreeMap<String, Kept>,
    packets: Option<Packets>,
}

impl Results {
    /// Reads what is below a root; without the directory there are none.
    ///
    /// # Errors
    /// When a file cannot be read or is not what its name says.
    pub fn read(root: &Path) -> Result<Self> {
        let pages = root.join(PAGES);
        if !pages.join(RESULTS).is_dir() {
            return Ok(Self::default());
        }
        let mut further = BTreeMap::new();
        for entry in fs::read_dir(&pages)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(FURTHER) && entry.path().is_dir() {
                further.insert(name.clone(), Kept::read(root, &name)?);
            }
        }
        let kept = Kept::read(root, RESULTS)?;
        Ok(Self {
            kept,
            further,
            packets: Packets::read(root)?,
        })
    }

    /// A page's text with its blocks as the results make them.
    ///
    /// # Errors
    /// When a block has no end, or is of something that is not there.
    pub fn expand(&self, text: &str) -> Result<String> {
        expand(text, block, |kind, of| match kind {
            "verdicts" => self.verdicts(of),
            "table" => self.table(of),
            "packets" => Ok(self.packets()?.table()),
            _ => self.item(of),
        })
    }

    fn of(&self, item: &str) -> Result<&Provenance> {
        self.kept
            .items
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
        let rows = match file.split_once('/') {
            Some((set, file)) => self.further.get(set).and_then(|it| it.tables.get(file)),
            None => self.kept.tables.get(file),
        };
        let place = match file.contains('/') {
            true => format!("{PAGES}/{file}"),
            false => format!("{}/{file}", self.kept.path()),
        };
        let rows = rows.with_context(|| format!("there is no {place}"))?;
        Ok(format!("\n{}\n", markdown(rows)))
    }

    fn packets(&self) -> Result<&Packets> {
        let packets = self.packets.as_ref();
        packets.context("there are no figures of real packets")
    }

    fn item(&self, item: &str) -> Result<String> {
        let it = self.of(item)?;
        let statement = it.statement(RESULTS);
        let mut text = format!("\n### {item}: {}\n\n{statement}.\n\n", it.title);
        for (set, it) in self.further_of(item) {
            let pictures = set.pictures_of(item).into_iter();
            let links = pictures.map(|name| match is_paper(name) {
                true => format!("[beside the paper]({}/{name})", set.name),
                false => format!("[{}]({}/{name})", set.pictures[name], set.name),
            });
            let links: Vec<String> = links.collect();
            text += &format!(
                "With {} {}; pictures: {}.\n\n",
                it.options(),
                it.statement(&set.name),
                links.join(", ")
            );
        }
        let checks = self.checks(item, it)?;
        if checks.len() > 1 {
            text += &markdown(&checks);
            text.push('\n');
        }
        for name in self.kept.pictures_of(item) {
            let what = match is_paper(name) {
                true => format!("{item}: what the paper says beside ours."),
                false => format!("{item}: {}.", self.kept.pictures[name]),
            };
            text += &format!("![{what}]({RESULTS}/{name})\n\n");
        }
        Ok(text)
    }

    /// The item where it is kept once more, with where that comes from.
    fn further_of(&self, item: &str) -> impl Iterator<Item = (&Kept, &Provenance)> {
        let sets = self.further.values();
        sets.filter_map(move |set| Some((set, set.items.get(item)?)))
    }

    /// The table of an item's checks, with its header: ours, and beside it those of further results and of packets.
    fn checks(&self, item: &str, from: &Provenance) -> Result<Vec<Vec<String>>> {
        let checks = self.kept.checks(item)?;
        let mut table = vec![
            ["check", "paper", "band", "ours", ""]
                .map(str::to_owned)
                .to_vec(),
        ];
        table.extend(checks.iter().map(Check::cells));
        for (set, it) in self.further_of(item) {
            table[0][3] = format!("ours, {}", from.options());
            let header = Check {
                ours: it.options(),
                ..Check::default()
            };
            let others = self.same_checks(item, &checks, set)?;
            for (row, other) in table.iter_mut().zip([header].into_iter().chain(others)) {
                row.extend([other.ours, other.verdict]);
            }
        }
        for (row, cell) in table.iter_mut().zip(self.column(item, &checks)?) {
            row.push(cell);
        }
        Ok(table)
    }

    /// An item's checks in further results, which have to be of the same claims.
    fn same_checks(&self, item: &str, checks: &[Check], set: &Kept) -> Result<Vec<Check>> {
        let others = set.checks(item)?;
        let (path, own) = (set.path(), self.kept.path());
        ensure!(
            others.len() == checks.len(),
            "{path} has other checks of {item} than {own}"
        );
        for (one, other) in checks.iter().zip(&others) {
            ensure!(
                (&one.name, &one.band) == (&other.name, &other.band),
                "{path} holds {:?} of {item} against {:?}, where {own} has {:?} and {:?}",
                other.name,
                other.band,
                one.name,
                one.band
            );
        }
        Ok(others)
    }

    /// The column of packets with its header; nothing where the item has none.
    fn column(&self, item: &str, checks: &[Check]) -> Result<Vec<String>> {
        let Some(packets) = &self.packets else {
            return Ok(Vec::new());
        };
        let names: Vec<&str> = checks.iter().map(|it| it.name.as_str()).collect();
        let column = packets.column(item, &names)?;
        let with_header =
            |it: Vec<String>| ["on packets".to_owned()].into_iter().chain(it).collect();
        Ok(column.map(with_header).unwrap_or_default())
    }

    /// Numbers that checks and tables of an item have.
    fn values(&self, item: &str) -> Values {
        let mut values = Values::default();
        for set in self.sets() {
            set.add_values(item, &mut values);
        }
        // What cannot be made is a fault of the item's block.
        let checks = self.kept.checks(item).unwrap_or_default();
        let column = self.column(item, &checks).unwrap_or_default();
        column.iter().for_each(|cell| values.add(cell));
        values
    }

    fn sets(&self) -> impl Iterator<Item = &Kept> {
        [&self.kept].into_iter().chain(self.further.values())
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
                "{place}: it is not what {PAGES}/{RESULTS} makes; `cargo xtask docs --figures` writes it"
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
    for item in results.kept.items.keys() {
        for kind in ["verdicts", "results"] {
            if !shown.contains(&(kind.to_owned(), item.clone())) {
                faults.push(format!(
                    "{PAGES}/{RESULTS}: no page has {item} in a block of {kind}"
                ));
            }
        }
    }
    for set in results.sets() {
        faults.extend(set.left_over());
        let is_alone = |it: &&String| !results.kept.items.contains_key(*it);
        let alone = set.items.keys().filter(is_alone);
        faults.extend(alone.map(|it| format!("{}: {RESULTS} has no {it}", set.path())));
    }
    let more: usize = results.further.values().map(|it| it.items.len()).sum();
    let summary = format!(
        "{} items, {more} of them from other runs as well, {numbers} numbers of the text",
        results.kept.items.len()
    );
    Ok((summary, faults))
}

impl Results {
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
                        "{}: {PAGES}/{RESULTS} has no {number} of {}",
                        page.place(line),
                        sought.join(", ")
                    ));
                }
            }
        }
        (count, faults)
    }
}

/// Kind and subject of a block that begins with this line.
fn block(line: &str) -> Option<(&str, &str)> {
    let kinds = ["results", "verdicts", "table", "packets"];
    comment(line).filter(|it| kinds.contains(&it.0))
}

/// The two parts of a line that is a comment of the kind `<!-- KIND: SUBJECT -->`.
pub(crate) fn comment(line: &str) -> Option<(&str, &str)> {
    let inside = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    inside.split_once(": ")
}

/// A text with what is made of its blocks between their first and last lines.
pub(crate) fn expand(
    text: &str,
    block: impl Fn(&str) -> Option<(&str, &str)>,
    make: impl Fn(&str, &str) -> Result<String>,
) -> Result<String> {
    let mut expanded = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        expanded += line;
        expanded.push('\n');
        let Some((kind, of)) = block(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        for line in make(kind, of)?.lines() {
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

pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
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

#[cfg(test)]
mod tests;
