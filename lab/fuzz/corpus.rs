//! A fuzz corpus, as it is committed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The inputs of a target, by name.
pub(crate) fn read(target: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory(target)).expect("the corpus is committed");
    let files = entries.map(|entry| {
        let entry = entry.expect("can be read");
        let name = entry.file_name().into_string().expect("named in ASCII");
        (name, fs::read(entry.path()).expect("can be read"))
    });
    files.collect()
}

/// A seed that is missing, or another than it should be.
pub(crate) fn assert_has(target: &str, seeds: BTreeMap<String, Vec<u8>>) {
    let corpus = read(target);
    for (name, seed) in seeds {
        assert_eq!(
            corpus.get(&name),
            Some(&seed),
            "{target}/{name}: run `cargo test -p {} --test {} -- --ignored`",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_CRATE_NAME"),
        );
    }
}

pub(crate) fn write(target: &str, seeds: BTreeMap<String, Vec<u8>>) {
    fs::create_dir_all(directory(target)).expect("can be made");
    for (name, seed) in seeds {
        fs::write(directory(target).join(name), seed).expect("can be written");
    }
}

fn directory(target: &str) -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut corpora = above.map(|directory| directory.join("lab/fuzz/corpus"));
    let corpora = corpora.find(|corpora| corpora.is_dir());
    corpora.expect("the workspace has it").join(target)
}
