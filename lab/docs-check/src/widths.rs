//! The built book as a browser lays it out: tables fit into a window, and no page is wider than a telephone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};
use flow_testbed::require::Requirement;
use serde::Deserialize;

use crate::{Faults, links};

const BROWSER: &str = "chromium-headless-shell";

/// Ends a browser that does not end by itself; it takes ten seconds, and half a minute on a busy machine.
const SECONDS: &str = "300";

/// Width of a window, in pixels, that tables fit into.
const WINDOW: u32 = 1_000;

/// Width of a telephone, where tables may be moved sideways, and pages not.
const TELEPHONE: u32 = 400;

/// Puts each page into a frame, and writes down what it measures there.
const FRAMES: &str = include_str!("widths.html");

/// A page in a window, as the browser saw it.
#[derive(Deserialize)]
struct Seen {
    page: String,
    window: u32,
    /// Pixels that the page is wider than its window; none where the browser could not look at it.
    width: Option<i64>,
    /// Tables that are wider than their place, each with both widths and its first row.
    wide: Vec<String>,
}

/// Opens all pages of a built book in a browser without a screen, and finds what readers would have to move
/// sideways. Where the browser is not installed, the line says so.
///
/// # Errors
/// When the book cannot be read, or the browser fails or leaves a page out.
pub fn check(book: &Path) -> Result<(String, Faults)> {
    if let Err(lacking) = Requirement::Program(BROWSER).check() {
        return Ok((format!("not looked at: {lacking}"), Faults::new()));
    }
    let pages = links::html_pages(book)?;
    let directory = tempfile::tempdir()?;
    let frames = directory.path().join("frames.html");
    fs::write(&frames, ask(book, &pages)?)?;
    let output = browse(&frames, directory.path())?;
    let seen = read(&output)?;
    ensure!(
        seen.len() == 2 * pages.len(),
        "{BROWSER} has opened {} of {} pages",
        seen.len() / 2,
        pages.len()
    );
    let summary = format!(
        "{} pages in windows of {WINDOW} and {TELEPHONE} pixels",
        pages.len()
    );
    Ok((summary, seen.iter().flat_map(faults).collect()))
}

fn faults(seen: &Seen) -> Faults {
    let Seen { page, window, .. } = seen;
    let mut faults = Faults::new();
    match seen.width {
        None => faults.push(format!("{page}: {BROWSER} cannot look into it")),
        Some(more) if more > 0 => {
            faults.push(format!(
                "{page}: {more} pixels wider than a window of {window}"
            ));
        }
        Some(_) => {}
    }
    if *window == WINDOW {
        let wide = seen.wide.iter();
        faults.extend(wide.map(|it| format!("{page}: table too wide for {window} pixels: {it}")));
    }
    faults
}

/// Writes the page that opens all others.
fn ask(book: &Path, pages: &[PathBuf]) -> Result<String> {
    let book = fs::canonicalize(book).context("cannot find the book")?;
    let asked = serde_json::json!({
        "book": format!("file://{}/", book.display()),
        "pages": pages,
        "widths": [WINDOW, TELEPHONE],
    });
    Ok(format!(
        "<!DOCTYPE html>\n<script>const asked = {asked};</script>\n{FRAMES}"
    ))
}

fn browse(frames: &Path, home: &Path) -> Result<Output> {
    let output = Command::new("timeout")
        .args([SECONDS, BROWSER])
        .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .arg(format!(
            "--user-data-dir={}",
            home.join("profile").display()
        ))
        // Pages of one book look into each other.
        .arg("--allow-file-access-from-files")
        .args(["--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("file://{}", frames.display()))
        .env("HOME", home)
        .output();
    output.context("cannot run timeout")
}

fn read(output: &Output) -> Result<Vec<Seen>> {
    let text = String::from_utf8_lossy(&output.stdout);
    let seen = text
        .split_once("<pre id=\"seen\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    match seen {
        Some((seen, _)) if !seen.is_empty() => {
            serde_json::from_str(seen).context("cannot read what the page has written")
        }
        _ => bail!(
            "{BROWSER} has not opened the pages ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wider_than_its_window_is_found() {
        flow_testbed::require!(Requirement::Program(BROWSER));
        let book = tempfile::tempdir().unwrap();
        let page = |name: &str, inner: &str| {
            let text = format!("<!DOCTYPE html><body style=\"margin: 0\"><main>{inner}</main>");
            fs::write(book.path().join(name), text).unwrap();
        };
        let table = |pixels: u32| {
            format!(
                "<div style=\"overflow-x: auto\"><table><tr><th style=\"min-width: {pixels}px\">a &lt;b&gt;</table></div>"
            )
        };
        page("a.html", &table(900));
        page("b.html", &table(1_100));
        page("c.html", "<div style=\"width: 500px\">c</div>");
        let (summary, faults) = check(book.path()).unwrap();
        assert_eq!(summary, "3 pages in windows of 1000 and 400 pixels");
        let [table, page] = &faults[..] else {
            panic!("{faults:?}");
        };
        assert!(
            table.starts_with("b.html: table too wide for 1000 pixels: "),
            "{table}"
        );
        assert!(table.ends_with("> 1000: a <b>"), "{table}");
        assert_eq!(page, "c.html: 100 pixels wider than a window of 400");
    }
}
