//! Blocks of shell, each executed on a border of its own or marked with the reason why it is not.
//!
//! A comment in front of a block, `<!-- not run: REASON -->`, is its mark, and reasons are few: [`REASONS`].
//! All others run, one after the other as a reader would, at a border whose devices and addresses are
//! those of the pages ([`Rig`]), next to a running agent.

use std::{collections::BTreeMap, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use flow_testbed::require::Requirement;

use crate::{
    Faults,
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

/// Executes every block that is not marked, and counts the marks by reason.
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
    let scripts: Vec<String> = blocks.iter().map(|(_, block)| script(block)).collect();
    let outcomes = Rig::build(root, programs)?.run(&scripts)?;
    for ((page, block), outcome) in blocks.iter().zip(&outcomes) {
        if outcome.status != 0 {
            let place = page.place(block.line);
            let (status, output) = (outcome.status, outcome.output.trim());
            faults.push(format!("{place}: ended with {status}: {output}"));
        }
    }
    ensure!(
        outcomes.len() == blocks.len(),
        "{} of {} blocks were run",
        outcomes.len(),
        blocks.len()
    );
    let (count, took) = (blocks.len(), start.elapsed().as_secs_f64());
    Ok((format!("{count} run in {took:.0} s, {marks}"), faults))
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

/// What a reader types: lines with a prompt of a console, else all.
fn script(block: &Block) -> String {
    if block.language != "console" {
        return block.text.clone();
    }
    let typed = block.text.lines().filter_map(|it| it.strip_prefix("$ "));
    typed.map(|line| format!("{line}\n")).collect()
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
        let scripts: Vec<String> = blocks.iter().map(|it| script(it.1)).collect();
        assert_eq!(scripts, ["one\n", "four\nfive\n"]);
        assert_eq!(marks, BTreeMap::from([("does not end", 1)]));
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].starts_with("a.md:14: not run for \"for fun\""),
            "{faults:?}"
        );
    }
}
