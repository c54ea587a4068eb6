//! Blocks of shell, each executed on a border of its own or marked with the reason why it is not.
//!
//! A comment in front of a block, `<!-- not run: REASON -->`, is its mark, and reasons are few: [`REASONS`].
//! All others run, one after the other as a reader would, at a border whose devices and addresses are
//! those of the pages ([`Rig`]), next to a running agent.

use std::{collections::BTreeMap, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use flow_testbed::require::Requirement;

use crate::{
    Faults, outputs,
    pages::{Block, Page},
    rig::Rig,
    shell,
};

/// Why a block is not executed, as marks say it.
pub const REASONS: [&str; 11] = [
    "another machine",
    "another program",
    "builds for minutes",
    "measures for minutes",
    "does not end",
    "for a terminal",
    "changes the machine",
    "a state that the page tells of",
    "an example's file",
    "devices that not every kernel has",
    "nothing is published yet",
];

/// Why the output that is shown of a block is not held against what it prints, as marks say it.
pub const NOT_COMPARED: [&str; 2] = [
    "a state that the page tells of",
    "another version of the program",
];

/// Executes every block that is not marked, holds what it prints against what is shown of it, and counts the
/// marks by reason.
///
/// # Errors
/// When the border cannot be made, or no block could be run.
pub fn check(root: &Path, pages: &[Page], programs: &Path) -> Result<(String, Faults)> {
    let start = Instant::now();
    let (blocks, marks, mut faults) = sorted(pages);
    let marked: usize = marks.values().sum();
    let reasons: Vec<String> = marks
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let marks = format!("{marked} marked ({})", reasons.join(", "));
    if let Some(lacking) = lacking() {
        let count = blocks.len();
        return Ok((format!("SKIPPED {count}: {lacking}; {marks}"), faults));
    }
    if blocks.is_empty() {
        return Ok((format!("none is run, {marks}"), faults));
    }
    let scripts: Vec<String> = blocks.iter().map(|it| outputs::script(it.1)).collect();
    let outcomes = Rig::build(root, programs)?.run(&scripts)?;
    let (mut compared, mut not_compared) = (0, 0);
    for ((page, block), outcome) in blocks.iter().zip(&outcomes) {
        let place = page.place(block.line);
        let output = outcome.output.trim();
        if outcome.status != 0 {
            faults.push(format!("{place}: ended with {}: {output}", outcome.status));
            continue;
        }
        let next = page.blocks.iter().find(|it| it.line > block.line);
        if !outputs::shows_output(block, next) {
            continue;
        }
        if is_marked(block, next) {
            not_compared += 1;
            continue;
        }
        compared += 1;
        if let Some(line) = outputs::missing(block, next, &outcome.output) {
            faults.push(format!("{place}: shows {line:?} and printed: {output}"));
        }
    }
    ensure!(
        outcomes.len() == blocks.len(),
        "{} of {} blocks were run",
        outcomes.len(),
        blocks.len()
    );
    let (count, took) = (blocks.len(), start.elapsed().as_secs_f64());
    let summary = format!(
        "{count} run in {took:.0} s, the shown output of {compared} compared and of {not_compared} not, {marks}"
    );
    Ok((summary, faults))
}

/// Tells whether a block that shows output, or what shows it behind a block of `sh`, is marked.
fn is_marked(block: &Block, next: Option<&Block>) -> bool {
    let behind = next.filter(|it| it.follows && block.language == "sh");
    let marks = [Some(block), behind];
    marks
        .into_iter()
        .flatten()
        .any(|it| it.not_compared.is_some())
}

type Sorted<'p> = (
    Vec<(&'p Page, &'p Block)>,
    BTreeMap<&'static str, usize>,
    Faults,
);

/// Blocks to run with their pages, marks by reason, and marks with a reason that there is not.
fn sorted(pages: &[Page]) -> Sorted<'_> {
    let (mut blocks, mut marks, mut faults) = (Vec::new(), BTreeMap::new(), Faults::new());
    for page in pages {
        for block in &page.blocks {
            if let Some(given) = &block.not_compared
                && !NOT_COMPARED.contains(&&**given)
            {
                let (place, known) = (page.place(block.line), NOT_COMPARED.join("; "));
                faults.push(format!(
                    "{place}: not compared for {given:?}; reasons are: {known}"
                ));
            }
        }
        for block in page.blocks.iter().filter(|it| shell::is_shell(it)) {
            let Some(given) = &block.not_run else {
                blocks.push((page, block));
                continue;
            };
            match REASONS.iter().find(|it| *it == given) {
                Some(reason) => *marks.entry(*reason).or_default() += 1,
                None => {
                    let place = page.place(block.line);
                    let known = REASONS.join("; ");
                    faults.push(format!(
                        "{place}: not run for {given:?}; reasons are: {known}"
                    ));
                }
            }
        }
    }
    (blocks, marks, faults)
}

fn lacking() -> Option<String> {
    use Requirement::*;
    let needed = [
        Root,
        Program("ip"),
        Program("ethtool"),
        Program("curl"),
        Program("jq"),
        Program("openssl"),
        Program("promtool"),
        FileSystem("bpf"),
    ];
    let lacking = needed.iter().find_map(|it| it.check().err())?;
    Some(lacking.to_string())
}

/// The first block of TOML of a page, which is a configuration that its commands go by.
///
/// # Errors
/// When the page cannot be read, or has none.
pub fn configuration_of(root: &Path, page: &str) -> Result<String> {
    let text =
        std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
    let page = Page::parse(page, &text);
    let block = page.blocks.into_iter().find(|it| it.language == "toml");
    Ok(block.context("it shows no configuration")?.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_run_unless_they_are_marked_with_a_known_reason() {
        let text = "```sh\none\n```\n\n<!-- not run: does not end -->\n```sh\ntwo\n```\n\n\
                    1. List\n\n   <!-- not run: for fun -->\n   ```console\n   $ three\n   out\n   ```\n\n\
                    <!-- not run: does not end -->\n\ntext\n\n```console\n$ four\nout\n$ five\n```\n";
        let pages = [Page::parse("a.md", text)];
        let (blocks, marks, faults) = sorted(&pages);
        let lines: Vec<usize> = blocks.iter().map(|it| it.1.line).collect();
        assert_eq!(lines, [2, 23]);
        assert_eq!(marks, BTreeMap::from([("does not end", 1)]));
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].starts_with("a.md:14: not run for \"for fun\""),
            "{faults:?}"
        );
    }
}
