//! Tables of rows that commands have written as comma-separated values, kept in a directory beside the page.
//!
//! A table stands between `<!-- rows: fabric/turns.csv: scheme, short ratio -->`, whose columns may be left out for all of
//! them, and `<!-- end of rows -->`. The directory has a `provenance.csv` with the command, the commit, the day and the
//! machine of each file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    Faults,
    pages::Page,
    results::{comment, expand, kept, markdown, packets::Made},
};

/// Pages of the book.
const BOOK: &str = "docs/src";
const KIND: &str = "rows";
const PROVENANCE: &str = "provenance.csv";

/// Writes the tables of all pages; returns the pages that changed.
///
/// # Errors
/// When a table cannot be made or a page cannot be written.
pub fn write(root: &Path, pages: &[Page]) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    for page in pages.iter().filter(|it| has_tables(it)) {
        let path = page.path.display().to_string();
        let text = with_tables(root, page).with_context(|| format!("in {path}"))?;
        if text != page.text {
            fs::write(root.join(&page.path), text)
                .with_context(|| format!("cannot write {path}"))?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// Checks that tables are what their files make, and that each file of their directories is on a page.
///
/// # Errors
/// When a directory cannot be read.
pub fn check(root: &Path, pages: &[Page]) -> Result<(String, Faults)> {
    let (mut faults, mut shown, mut directories) =
        (Faults::new(), BTreeSet::new(), BTreeSet::new());
    for page in pages.iter().filter(|it| has_tables(it)) {
        let place = page.path.display();
        match with_tables(root, page) {
            Err(error) => faults.push(format!("{place}: {error:#}")),
            Ok(text) if text != page.text => faults.push(format!(
                "{place}: its tables are not what their rows make; `cargo xtask docs --figures` writes them"
            )),
            Ok(_) => {}
        }
        for (file, _) in page.text.lines().filter_map(table) {
            if has_directory(file) {
                let file = beside(page, file);
                directories.extend(file.parent().map(Path::to_path_buf));
                shown.insert(file);
            }
        }
    }
    for directory in directories {
        for entry in fs::read_dir(root.join(&directory))? {
            let file = directory.join(entry?.file_name());
            if !file.ends_with(PROVENANCE) && !shown.contains(&file) {
                faults.push(format!("{}: no page has it", file.display()));
            }
        }
    }
    Ok((format!("{} tables", shown.len()), faults))
}

fn has_tables(page: &Page) -> bool {
    page.path.starts_with(BOOK) && page.text.lines().any(|it| table(it).is_some())
}

fn block(line: &str) -> Option<(&str, &str)> {
    comment(line).filter(|it| it.0 == KIND)
}

/// The file and the columns of a table that begins with this line.
fn table(line: &str) -> Option<(&str, Vec<&str>)> {
    let (_, of) = block(line)?;
    let (file, columns) = of.split_once(": ").unwrap_or((of, ""));
    let columns = columns.split(", ").filter(|it| !it.is_empty());
    Some((file, columns.collect()))
}

/// Tells if a file lies in a directory beside the page, of which all files are on pages.
fn has_directory(file: &str) -> bool {
    let directory = Path::new(file).parent();
    directory.is_some_and(|it| !it.as_os_str().is_empty())
}

fn beside(page: &Page, file: &str) -> PathBuf {
    page.path.with_file_name(file)
}

fn with_tables(root: &Path, page: &Page) -> Result<String> {
    let known: BTreeMap<String, Vec<Made>> = page
        .text
        .lines()
        .filter_map(table)
        .map(|(file, _)| {
            ensure!(
                has_directory(file),
                "{file} lies beside the page, where tables have a directory of their own"
            );
            let path = root.join(beside(page, file)).with_file_name(PROVENANCE);
            Ok((file.to_owned(), provenance(&path)?))
        })
        .collect::<Result<_>>()?;
    expand(&page.text, block, |kind, of| {
        let line = format!("<!-- {kind}: {of} -->");
        let (file, columns) = table(&line).context("it names no file")?;
        let mut made = known.get(file).into_iter().flatten();
        let name = Path::new(file).file_name();
        let made = made.find(|it| name.is_some_and(|name| name == it.file.as_str()));
        let made = made.with_context(|| format!("{PROVENANCE} beside {file} does not have it"))?;
        let path = root.join(beside(page, file));
        let rows =
            kept::records(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let table = markdown(&chosen(rows, &columns).with_context(|| format!("of {file}"))?);
        Ok(format!("\n{table}\n{}\n\n", statement(file, made)))
    })
}

fn provenance(path: &Path) -> Result<Vec<Made>> {
    let place = || format!("cannot read {}", path.display());
    let mut csv = csv::Reader::from_path(path).with_context(place)?;
    csv.deserialize()
        .collect::<Result<_, _>>()
        .with_context(place)
}

/// The columns of that name, in that order; all where none is named.
fn chosen(rows: Vec<Vec<String>>, columns: &[&str]) -> Result<Vec<Vec<String>>> {
    let header = rows.first().context("there is no row")?;
    let place = |name: &&str| {
        let place = header.iter().position(|it| it == name);
        place.with_context(|| format!("there is no column {name:?}"))
    };
    let places: Vec<usize> = columns.iter().map(place).collect::<Result<_>>()?;
    ensure!(rows.len() > 1, "there is no row below the header");
    if places.is_empty() {
        return Ok(rows);
    }
    let row = |row: &Vec<String>| places.iter().map(|it| row[*it].clone()).collect();
    Ok(rows.iter().map(row).collect())
}

fn statement(file: &str, made: &Made) -> String {
    let Made {
        command,
        commit,
        date,
        machine,
        ..
    } = made;
    let commit = kept::shown_commit(commit);
    format!("[Rows]({file}): `{command}`, commit `{commit}`, {date}; {machine}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "scheme,changed,ratio\necmp_flow,-,1.05\nrps,a=1;b=2,1.20\n";
    const BLOCK: &str = "# Title\n\n<!-- rows: fabric/turns.csv: scheme, ratio -->\n<!-- end of rows -->\n\nText.\n";
    const MADE: &str = "# Title\n\n<!-- rows: fabric/turns.csv: scheme, ratio -->\n\n| scheme | ratio |\n|---|---|\n\
                        | ecmp_flow | 1.05 |\n| rps | 1.20 |\n\n\
                        [Rows](fabric/turns.csv): `cargo xtask fabric --predict`, commit `0123456789`, 2026-11-28; any machine.\n\n\
                        <!-- end of rows -->\n\nText.\n";

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(BOOK).join("explanation").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("fabric/turns.csv", ROWS);
        write(
            "fabric/provenance.csv",
            "file,command,commit,date,machine\n\
             turns.csv,cargo xtask fabric --predict,0123456789abcdef,2026-11-28,any machine\n",
        );
        write("fabric.md", BLOCK);
        root
    }

    fn page(text: &str) -> [Page; 1] {
        [Page::parse("docs/src/explanation/fabric.md", text)]
    }

    fn faults(root: &Path, text: &str) -> Faults {
        check(root, &page(text)).unwrap().1
    }

    #[test]
    fn tables_are_written_of_the_columns_that_are_named() {
        let root = root();
        let changed = write(root.path(), &page(BLOCK)).unwrap();
        assert_eq!(changed, ["docs/src/explanation/fabric.md"]);
        let text = fs::read_to_string(root.path().join(&changed[0])).unwrap();
        assert_eq!(text, MADE);
        assert_eq!(faults(root.path(), MADE), Faults::new());
        assert!(write(root.path(), &page(MADE)).unwrap().is_empty());
    }

    #[test]
    fn figure_that_is_not_in_the_rows_is_a_fault_and_so_are_rows_of_no_page() {
        let root = root();
        let [wrong] = &faults(root.path(), &MADE.replace("1.20", "1.02"))[..] else {
            panic!("one fault");
        };
        assert!(wrong.contains("not what their rows make"), "{wrong}");
        let stray = root.path().join("docs/src/explanation/fabric/stray.csv");
        fs::write(stray, ROWS).unwrap();
        let stray = &faults(root.path(), MADE)[0];
        assert!(stray.contains("stray.csv: no page has it"), "{stray}");
    }

    #[test]
    fn column_file_or_provenance_that_is_not_there_is_named() {
        let root = root();
        for (text, expected) in [
            (
                MADE.replace("scheme, ratio", "scheme, p99"),
                "no column \"p99\"",
            ),
            (
                MADE.replace("turns.csv:", "others.csv:"),
                "does not have it",
            ),
            (MADE.replace("<!-- end of rows -->", ""), "has no"),
        ] {
            let fault = &faults(root.path(), &text)[0];
            assert!(fault.contains(expected), "{fault}");
        }
        // All other files of that directory are no rows.
        let [beside] = &faults(root.path(), &MADE.replace("fabric/turns", "fabric"))[..] else {
            panic!("one fault");
        };
        assert!(beside.contains("a directory of their own"), "{beside}");
        let made = root
            .path()
            .join("docs/src/explanation/fabric/provenance.csv");
        let text = fs::read_to_string(&made).unwrap();
        fs::write(&made, text.replace("turns.csv", "")).unwrap();
        let nameless = &faults(root.path(), MADE)[0];
        assert!(nameless.contains("does not have it"), "{nameless}");
    }
}
