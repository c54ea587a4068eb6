//! Compares ELF objects section by section, to say where they differ.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, read::elf::ElfFile64};

/// Names of the sections that differ, each with how; empty for equal objects.
pub(crate) fn differences(committed: &[u8], fresh: &[u8]) -> Result<Vec<String>> {
    if committed == fresh {
        return Ok(Vec::new());
    }
    let committed = without_crate_hashes(committed).context("the committed object")?;
    let fresh = without_crate_hashes(fresh).context("the fresh object")?;
    if committed == fresh {
        return Ok(Vec::new());
    }
    let mut found = diff(&sections(&committed)?, &sections(&fresh)?);
    if found.is_empty() {
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

/// Replaces what tells crates of one name apart in mangled symbols: cargo works
/// it out from the directory that the project lies in.
fn without_crate_hashes(object: &[u8]) -> Result<Vec<u8>> {
    let elf = ElfFile64::<object::Endianness>::parse(object).context("not a 64-bit ELF object")?;
    let names = elf.section_by_name(".strtab");
    let mut masked = object.to_vec();
    if let Some((start, size)) = names.and_then(|names| names.file_range()) {
        let end = usize::try_from(start.saturating_add(size))?;
        let names = masked.get_mut(usize::try_from(start)?..end);
        mask_crate_hashes(names.context("the names of symbols lie outside of the object")?);
    }
    Ok(masked)
}

/// Writes zeros over the base-62 number of each `Cs..._` (RFC 2603, "crate-root").
fn mask_crate_hashes(names: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = names[at..].windows(2).position(|pair| pair == b"Cs") {
        let start = at + found + 2;
        let is_digit = |byte: &&u8| byte.is_ascii_alphanumeric();
        let digits = names[start..].iter().take_while(is_digit).count();
        if names.get(start + digits) == Some(&b'_') {
            names[start..start + digits].fill(b'0');
        }
        at = start + digits;
    }
}

/// Contents by name; a number tells sections of one name apart.
type Sections<'o> = BTreeMap<(String, usize), &'o [u8]>;

fn sections(object: &[u8]) -> Result<Sections<'_>> {
    let elf = ElfFile64::<object::Endianness>::parse(object).context("not a 64-bit ELF object")?;
    let mut sections = Sections::new();
    for section in elf.sections() {
        let name = section.name().context("a section without a name")?;
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
        let masked = |name: &str| {
            let mut name = name.as_bytes().to_vec();
            mask_crate_hashes(&mut name);
            name
        };
        let one = masked("xdp\0_RNCNvCs5x6iAc_8splitter3logCsa6_3aya\0Cs");
        assert_eq!(
            one,
            masked("xdp\0_RNCNvCs2azeIB_8splitter3logCsa7_3aya\0Cs")
        );
        assert_ne!(
            one,
            masked("xdp\0_RNCNvCs2azeIB_8splitter3lagCsa7_3aya\0Cs")
        );
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
