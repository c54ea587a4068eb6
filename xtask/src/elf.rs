//! Compares ELF objects section by section, to say where they differ.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, read::elf::ElfFile64};

/// Names of the sections that differ, each with how; empty for equal objects.
pub(crate) fn differences(committed: &[u8], fresh: &[u8]) -> Result<Vec<String>> {
    if committed == fresh {
        return Ok(Vec::new());
    }
    let committed = sections(committed).context("the committed object")?;
    let fresh = sections(fresh).context("the fresh object")?;
    let mut found = diff(&committed, &fresh);
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
