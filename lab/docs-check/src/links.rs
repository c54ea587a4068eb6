//! Links and anchors: of the book as it was built, and of the pages that lie outside of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{Faults, pages::Page};

/// Pages that repeat others, or stand for any.
const REPEATED: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// Checks that each link, picture and anchor of the built book leads somewhere in it.
///
/// # Errors
/// When the book cannot be read, or has no page.
pub fn check_html(book: &Path) -> Result<(String, Faults)> {
    let mut files = BTreeMap::new();
    read_html(book, Path::new(""), &mut files)?;
    ensure!(!files.is_empty(), "{} has no page", book.display());
    let mut faults = Faults::new();
    let mut count = 0;
    for (path, text) in files.iter().filter(|(path, _)| !is_repeated(path)) {
        for link in attributes(text, &["href", "src"]) {
            if is_elsewhere(&link) {
                continue;
            }
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                _ => resolve(path, file),
            };
            if !book.join(&target).is_file() {
                faults.push(format!("{}: no file {link}", path.display()));
            } else if !anchor.is_empty()
                && let Some(text) = files.get(&target)
                && !attributes(text, &["id", "name"]).contains(anchor)
            {
                faults.push(format!("{}: no anchor {link}", path.display()));
            }
        }
    }
    Ok((format!("{count} in {} pages", files.len()), faults))
}

/// Lists the pages of a built book, without those that repeat others.
pub(crate) fn html_pages(book: &Path) -> Result<Vec<PathBuf>> {
    let mut files = BTreeMap::new();
    read_html(book, Path::new(""), &mut files)?;
    Ok(files.into_keys().filter(|it| !is_repeated(it)).collect())
}

fn is_repeated(path: &Path) -> bool {
    REPEATED.iter().any(|it| path == Path::new(it))
}

/// Checks that each link and picture of pages outside the book leads to a file and a heading.
///
/// # Errors
/// None so far.
pub fn check_markdown(root: &Path, pages: &[Page]) -> Result<(String, Faults)> {
    let mut faults = Faults::new();
    let mut count = 0;
    let is_of_book = |page: &&Page| page.path.starts_with("docs/src");
    for page in pages.iter().filter(|page| !is_of_book(page)) {
        for (line, link) in page.links.iter().filter(|(_, it)| !is_elsewhere(it)) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.path.clone(),
                _ => resolve(&page.path, file),
            };
            if !root.join(&target).exists() {
                faults.push(format!("{}: no file {link}", page.place(*line)));
                continue;
            }
            let target = pages.iter().find(|it| it.path == target);
            let is_missing = |target: &Page| target.headings.iter().all(|it| slug(it) != anchor);
            if !anchor.is_empty() && target.is_some_and(is_missing) {
                faults.push(format!("{}: no heading {link}", page.place(*line)));
            }
        }
    }
    Ok((format!("{count}"), faults))
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|it| match it {
        ' ' => Some('-'),
        '-' | '_' => Some(it),
        _ if it.is_alphanumeric() => Some(it.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn is_elsewhere(link: &str) -> bool {
    ["http://", "https://", "mailto:", "data:", "javascript:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

/// Takes `..` out of a path relative to a file.
fn resolve(from: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let joined = from.parent().unwrap_or(Path::new("")).join(link);
    for component in joined.components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            _ => path.push(component),
        }
    }
    path
}

/// Values of attributes, as mdBook writes them: in double quotes.
fn attributes(html: &str, names: &[&str]) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for name in names {
        for rest in html.split(&format!(" {name}=\"")).skip(1) {
            let value = rest.split('"').next().unwrap_or_default();
            values.insert(value.replace("&amp;", "&"));
        }
    }
    values
}

fn read_html(book: &Path, directory: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let place = book.join(directory);
    let entries =
        fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_html(book, &path, files)?;
        } else if path.extension().is_some_and(|it| it == "html") {
            files.insert(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found_in_a_book() {
        let book = tempfile::tempdir().unwrap();
        fs::create_dir(book.path().join("a")).unwrap();
        fs::write(
            book.path().join("a/b.html"),
            r##"<h2 id="here"><a href="../c.html#there">x</a> <a href="#here">y</a>
                <a href="../c.html#gone">z</a> <img src="gone.svg"> <a href="https://x/gone">w</a>"##,
        )
        .unwrap();
        fs::write(book.path().join("c.html"), r#"<h2 id="there">"#).unwrap();
        let (_, faults) = check_html(book.path()).unwrap();
        assert_eq!(
            faults,
            [
                "a/b.html: no anchor ../c.html#gone",
                "a/b.html: no file gone.svg"
            ]
        );
    }

    #[test]
    fn a_link_to_nothing_is_found_outside_the_book() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("B.md"), "").unwrap();
        let a = Page::parse("A.md", "[x](B.md#the-run-command) [y](B.md#gone) [z](C.md)");
        let b = Page::parse("B.md", "# The `run` command!");
        let (_, faults) = check_markdown(root.path(), &[a, b]).unwrap();
        assert_eq!(
            faults,
            ["A.md:1: no heading B.md#gone", "A.md:1: no file C.md"]
        );
    }
}
