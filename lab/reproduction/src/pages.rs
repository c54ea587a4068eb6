//! All figures as one page.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use flow_report::{Page, Table};

use crate::{artefact::Artefact, figure::Figure};

/// Writes `index.html`: a table of verdicts, how it was made, then each figure.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(figures: &[Figure], artefact: &Artefact, directory: &Path) -> Result<()> {
    let mut verdicts = Table::new(["item", "what", "verdict"]);
    for it in figures {
        verdicts.row([it.id, it.title, &it.verdict().to_string()]);
    }
    let mut page = Page::new("The papers' figures, reproduced")
        .text(
            "Reproduced: all checks lie in their bands. Outside: some do not. Refuted: of some the contrary \
             of what the paper says was measured, with the whole 95 % confidence interval. Depends on load: it was \
             at some loads, and at others what the paper says.",
        )
        .table(&verdicts)
        .heading("How it was made")
        .text(&artefact.sentence())
        .table(&artefact.table())
        .note("Items of one experiment share its runs, and the first of them makes these.");
    for it in figures {
        page = page
            .heading(&format!("{}: {} ({})", it.id, it.title, it.verdict()))
            .table(&it.checks_table());
        if !it.note.is_empty() {
            page = page.note(&it.note);
        }
        if let Some(claims) = it.claims() {
            page = page.claims(&claims);
        }
        for plot in &it.plots {
            page = page.plot(plot);
        }
        for table in &it.tables {
            page = page.table(table);
        }
    }
    let file = directory.join("index.html");
    fs::write(&file, page.to_html()).with_context(|| format!("cannot write {}", file.display()))
}
