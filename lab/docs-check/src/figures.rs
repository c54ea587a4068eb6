//! The book's figures: drawn by one command from descriptions and measured figures in `docs/figures`.
//!
//! `NAME.pikchr` is a drawing, `NAME.toml` bars of what was measured, `NAME.recording` answers to a dashboard's
//! queries. All become `docs/src/figures/NAME.svg`,
//! which is committed, so that a page shows it wherever it is read.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{Faults, bars::Bars, dashboard::Recording, drawing, pages::Page};

const SOURCES: &str = "docs/figures";
const DRAWN: &str = "docs/src/figures";

/// One figure, drawn from its source.
struct Figure {
    svg: String,
    /// Figures of a measurement.
    bars: Option<Bars>,
}

/// Draws all figures and returns a line about each that has changed.
///
/// # Errors
/// When a description is not understood or a file cannot be written.
pub fn draw(root: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    fs::create_dir_all(root.join(DRAWN)).with_context(|| format!("cannot make {DRAWN}"))?;
    for (name, figure) in all(root)? {
        let path = drawn(root, &name);
        if fs::read_to_string(&path).ok().as_ref() != Some(&figure.svg) {
            fs::write(&path, &figure.svg)
                .with_context(|| format!("cannot write {}", path.display()))?;
            lines.push(format!("{DRAWN}/{name}.svg"));
        }
        for fault in drawing::faults(&figure.svg)? {
            lines.push(format!("  {name}: {fault}"));
        }
    }
    Ok(lines)
}

/// Checks that figures are what their sources make, can be read, are shown, and have the pages' numbers.
///
/// # Errors
/// When a description is not understood.
pub fn check(root: &Path, pages: &[Page]) -> Result<(String, Faults)> {
    let mut faults = Faults::new();
    let figures = all(root)?;
    let mut measured = 0;
    for (name, figure) in &figures {
        let found = fs::read_to_string(drawn(root, name)).unwrap_or_default();
        if found != figure.svg {
            faults.push(format!(
                "{DRAWN}/{name}.svg is not what its source makes; `cargo xtask docs --figures` draws it"
            ));
        }
        let each = drawing::faults(&figure.svg)?.into_iter();
        faults.extend(each.map(|fault| format!("{SOURCES}/{name}: {fault}")));
        let file = format!("figures/{name}.svg");
        let is_shown = |page: &Page| page.links.iter().any(|(_, link)| link.ends_with(&file));
        if !pages.iter().any(is_shown) {
            faults.push(format!("{SOURCES}/{name}: no page shows it"));
        }
        if let Some(bars) = &figure.bars {
            measured += 1;
            faults.extend(bars.faults(name, pages));
        }
    }
    for entry in fs::read_dir(root.join(DRAWN)).with_context(|| format!("cannot read {DRAWN}"))? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !figures.contains_key(&name) {
            faults.push(format!("{DRAWN}/{name}.svg has no source"));
        }
    }
    let summary = format!("{}, {measured} of them of measurements", figures.len());
    Ok((summary, faults))
}

fn drawn(root: &Path, name: &str) -> PathBuf {
    root.join(DRAWN).join(format!("{name}.svg"))
}

fn all(root: &Path) -> Result<BTreeMap<String, Figure>> {
    let mut figures = BTreeMap::new();
    let sources = root.join(SOURCES);
    let entries = fs::read_dir(&sources).with_context(|| format!("cannot read {SOURCES}"))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let figure = match path.extension().and_then(|it| it.to_str()) {
            Some("pikchr") => of_drawing(&text),
            Some("toml") => of_measurement(&text),
            Some("recording") => of_recording(&text),
            _ => continue,
        };
        let figure = figure.with_context(|| format!("in {}", path.display()))?;
        if figures.insert(name.clone(), figure).is_some() {
            bail!("two sources in {SOURCES} are called {name}");
        }
    }
    Ok(figures)
}

/// The first line is a comment with the title.
fn of_drawing(text: &str) -> Result<Figure> {
    let title = text.lines().next().and_then(|it| it.strip_prefix("# "));
    let title = title.context("the first line is no comment with the figure's title")?;
    Ok(Figure {
        svg: drawing::draw(title, text)?,
        bars: None,
    })
}

fn of_measurement(text: &str) -> Result<Figure> {
    let bars = Bars::parse(text)?;
    Ok(Figure {
        svg: drawing::draw(&bars.title, &bars.description()?)?,
        bars: Some(bars),
    })
}

fn of_recording(text: &str) -> Result<Figure> {
    let recording = Recording::parse(text)?;
    Ok(Figure {
        svg: drawing::draw(&recording.title, &recording.description()?)?,
        bars: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_stale_unseen_or_left_over_is_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("docs/figures/a.pikchr", "# A title\nbox \"x\" fit\n");
        draw(root.path()).unwrap();
        let shown = [Page::parse("docs/src/b.md", "![x](figures/a.svg)")];
        let faults = |pages: &[Page]| check(root.path(), pages).unwrap().1;
        assert_eq!(faults(&shown), [""; 0]);
        assert_eq!(faults(&[]), ["docs/figures/a: no page shows it"]);
        write("docs/figures/a.pikchr", "# A title\nbox \"y\" fit\n");
        write("docs/src/figures/c.svg", "");
        let found = faults(&shown);
        assert!(
            found[0].starts_with("docs/src/figures/a.svg is not"),
            "{found:?}"
        );
        assert_eq!(found[1], "docs/src/figures/c.svg has no source");
    }
}
