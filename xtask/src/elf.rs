//! Compares ELF objects section by section, to say where they differ.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol, read::elf::ElfFile64};

/// Names of the sections that differ, each with how; empty for equal objects.
pub(crate) fn differences(committed: &[u8], fresh: &[u8]) -> Result<Vec<String>> {
    if committed == fresh {
        return Ok(Vec::new());
    }
    let (one, other) = (
        sections(committed).context("the committed object")?,
        sections(fresh).context("the fresh object")?,
    );
    let mut found = diff(&one, &other);
    if symbols(committed)? != symbols(fresh)? {
        found.push("the symbols".to_owned());
    }
    let names = |object| section(object, NAMES_OF_SYMBOLS);
    if found.is_empty() && names(committed)? == names(fresh)? {
        found.push("none, only headers or layout".to_owned());
    }
    Ok(found)
}

/// Which of `names` the object does not have.
pub(crate) fn missing<'n>(object: &[u8], names: &[&'n str]) -> Result<Vec<&'n str>> {
    let sections = sections(object)?;
    let lacks = |name: &&&str| !sections.keys().any(|(found, _)| found == **name);
    Ok(names.iter().filter(lacks).copied().collect())
}

const SYMBOLS: &str = ".symtab";
const NAMES_OF_SYMBOLS: &str = ".strtab";

/// A symbol, by its name without crates' hashes, its section, address and size.
type Symbol = (String, Option<usize>, u64, u64);

/// All symbols. What tells crates of one name apart in mangled ones is left out: cargo works
/// it out from the directory that the project lies in, and it may be longer in one than in another.
fn symbols(object: &[u8]) -> Result<Vec<Symbol>> {
    let elf = parse(object)?;
    let symbols = elf.symbols().map(|symbol| {
        let name = symbol.name().context("a symbol without a name")?;
        let section = symbol.section_index().map(|it| it.0);
        Ok((
            without_crate_hashes(name),
            section,
            symbol.address(),
            symbol.size(),
        ))
    });
    let mut symbols = symbols.collect::<Result<Vec<Symbol>>>()?;
    symbols.sort();
    Ok(symbols)
}

/// A mangled name with nothing between `Cs` and the `_` that ends the number of a crate (RFC 2603,
/// "crate-root").
fn without_crate_hashes(name: &str) -> String {
    let mut parts = name.split("Cs");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        masked += "Cs";
        let is_number = |digits: &str| digits.bytes().all(|it| it.is_ascii_alphanumeric());
        masked += match part.split_once('_') {
            Some((digits, rest)) if is_number(digits) => rest,
            _ => part,
        };
    }
    masked
}

fn parse(object: &[u8]) -> Result<ElfFile64<'_>> {
    ElfFile64::parse(object).context("not a 64-bit ELF object")
}

/// The contents of one section, if it is there.
fn section<'o>(object: &'o [u8], name: &str) -> Result<Option<&'o [u8]>> {
    let elf = parse(object)?;
    let found = elf.section_by_name(name);
    Ok(found.map(|section| section.data()).transpose()?)
}

/// Contents by name, but for what [`symbols`] reads; a number tells sections of one name apart.
type Sections<'o> = BTreeMap<(String, usize), &'o [u8]>;

fn sections(object: &[u8]) -> Result<Sections<'_>> {
    let elf = parse(object)?;
    let mut sections = Sections::new();
    for section in elf.sections() {
        let name = section.name().context("a section without a name")?;
        if [SYMBOLS, NAMES_OF_SYMBOLS].contains(&name) {
            continue;
        }
        let data = section
            .data()
            .with_context(|| format!("section {name} lies outside of the object"))?;
        let same_name = sections.keys().filter(|(found, _)| found == name).count();
        sections.insert((name.to_owned(), same_name), data);
    }
    Ok(sections)
}

fn diff(committed: &Sections<'_>, fresh: &Sections<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, old) in committed {
        let name = &key.0;
        match fresh.get(key) {
            None => found.push(format!("{name} (gone)")),
            Some(new) if new.len() != old.len() => found.push(format!(
                "{name} ({} bytes committed, {} fresh)",
                old.len(),
                new.len()
            )),
            Some(new) if new != old => found.push(format!("{name} (same size)")),
            Some(_) => {}
        }
    }
    let new = fresh.keys().filter(|key| !committed.contains_key(*key));
    found.extend(new.map(|(name, _)| format!("{name} (new)")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'o>(sections: &[(&str, &'o [u8])]) -> Sections<'o> {
        sections
            .iter()
            .map(|(name, data)| (((*name).to_owned(), 0), *data))
            .collect()
    }

    #[test]
    fn names_each_section_that_differs() {
        let committed = of(&[
            ("xdp", b"1234"),
            (".BTF", b"ab"),
            (".maps", b"m"),
            ("old", b""),
        ]);
        let fresh = of(&[
            ("xdp", b"12345"),
            (".BTF", b"ac"),
            (".maps", b"m"),
            ("new", b""),
        ]);
        assert_eq!(
            diff(&committed, &fresh),
            [
                ".BTF (same size)",
                "old (gone)",
                "xdp (4 bytes committed, 5 fresh)",
                "new (new)"
            ]
        );
    }

    #[test]
    fn symbols_are_alike_wherever_the_project_lies() {
        let one = without_crate_hashes("_RNCNvCs5x6iAc_8splitter3logCsa6_3aya");
        let other = without_crate_hashes("_RNCNvCs2azeIBr_8splitter3logCsa7_3aya");
        assert_eq!(one, other);
        let renamed = without_crate_hashes("_RNCNvCs2azeIBr_8splitter3lagCsa7_3aya");
        assert_ne!(one, renamed);
        assert_eq!(without_crate_hashes("Cs.rs_xdp"), "Cs.rs_xdp");
    }

    #[test]
    fn equal_objects_need_no_parsing_and_others_are_refused() {
        assert!(differences(b"same", b"same").unwrap().is_empty());
        let error = differences(b"no", b"elf").unwrap_err();
        assert!(format!("{error:#}").contains("not a 64-bit ELF object"));
    }

    #[test]
    fn reads_the_sections_of_a_real_object() {
        let this_program = std::fs::read("/proc/self/exe").unwrap();
        let missing = missing(&this_program, &[".text", ".BTF"]).unwrap();
        assert_eq!(missing, [".BTF"]);
    }
}
