//! The rules see what they are meant to see.

use std::{fs, path::Path};

use workspace_rules::{Crate, Cycle, Reach};

/// A crate of these files.
fn krate(directory: &Path, files: &[(&str, &str)]) -> Crate {
    for (name, text) in files {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    Crate::read(&directory.join("lib.rs")).unwrap()
}

fn cycles(files: &[(&str, &str)]) -> Vec<Cycle> {
    let directory = tempfile::tempdir().unwrap();
    workspace_rules::cycles(&workspace_rules::module_dependencies(&krate(
        directory.path(),
        files,
    )))
}

#[test]
fn a_loop_of_modules_is_found_in_every_way_to_write_it() {
    let loops = [
        "use crate::a::{self, Other}; fn f() {}",
        "fn f() { crate::a::g() }",
        "fn f() { println!(\"{}\", crate::a::G) }",
        "use super::a::g;",
        "use crate::Shown;",
    ];
    let root = "mod a; mod b; pub use a::Shown;";
    for text in loops {
        let found = cycles(&[
            ("lib.rs", root),
            ("a.rs", "use crate::b::f;"),
            ("b.rs", text),
        ]);
        assert_eq!(
            found,
            [Cycle(vec!["a".to_owned(), "b".to_owned()])],
            "{text}"
        );
    }
}

#[test]
fn an_arrow_down_and_one_of_a_test_make_no_loop() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::f; mod c;"),
        ("a/c.rs", "use super::super::b::f; use super::d;"),
        (
            "b.rs",
            "fn f() {} #[cfg(test)] mod tests { use crate::a::g; }",
        ),
    ];
    assert_eq!(cycles(&files), []);
}

#[test]
fn lines_of_code_are_those_with_code_outside_of_tests() {
    let directory = tempfile::tempdir().unwrap();
    let text = "//! About it.\n\n/// Adds.\n#[must_use]\npub fn add(a: u8) -> u8 {\n    // Why.\n    a + 1 // one\n}\n\n\
                #[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {}\n}\n";
    let krate = krate(directory.path(), &[("lib.rs", text)]);
    assert_eq!(workspace_rules::code_lines(&krate), 4);
}

#[test]
fn first_lines_are_paragraphs_of_public_items() {
    let directory = tempfile::tempdir().unwrap();
    let text = "//! Head of it.\n//! Goes on.\n//!\n//! More.\n\
                /// Public one.\npub struct A;\n/// Hidden.\nstruct B;\n\
                impl A {\n /// Method of it.\n pub fn f() {}\n /// Hidden.\n pub(crate) fn g() {} }";
    let krate = krate(directory.path(), &[("lib.rs", text)]);
    let items = workspace_rules::items(&krate, Reach::Public);
    let lines: Vec<_> = items
        .iter()
        .map(|item| (item.name.as_str(), item.first_line.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            ("crate", "Head of it. Goes on."),
            ("A", "Public one."),
            ("A::f", "Method of it.")
        ]
    );
}
