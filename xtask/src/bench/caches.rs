//! The processor's caches, as the kernel tells them.

use std::{collections::BTreeMap, fs, path::Path};

/// Bytes of each cache of data that the first processor uses, by a name for results. Empty where the
/// kernel does not tell.
pub(super) fn of_machine() -> BTreeMap<String, f64> {
    in_directory(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn in_directory(caches: &Path) -> BTreeMap<String, f64> {
    let entries = fs::read_dir(caches).into_iter().flatten().flatten();
    entries.filter_map(|entry| cache(&entry.path())).collect()
}

fn cache(directory: &Path) -> Option<(String, f64)> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let (level, kind, size) = (read("level")?, read("type")?, read("size")?);
    let kibibytes: u32 = size.trim().strip_suffix('K')?.parse().ok()?;
    if kind.trim() == "Instruction" {
        return None;
    }
    let name = format!("cache_level_{}_bytes", level.trim());
    Some((name, 1_024.0 * f64::from(kibibytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_data_are_read_and_those_of_instructions_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let caches = [
            ("index0", "1", "Data", "48K"),
            ("index1", "1", "Instruction", "32K"),
            ("index2", "2", "Unified", "2048K"),
        ];
        for (index, level, kind, size) in caches {
            let path = directory.path().join(index);
            fs::create_dir(&path).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(path.join(name), format!("{text}\n")).unwrap();
            }
        }
        let expected = BTreeMap::from([
            ("cache_level_1_bytes".to_owned(), 49_152.0),
            ("cache_level_2_bytes".to_owned(), 2_097_152.0),
        ]);
        assert_eq!(in_directory(directory.path()), expected);
        assert!(in_directory(Path::new("/nowhere")).is_empty());
    }
}
