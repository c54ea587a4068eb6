//! The committed texts that come from the declarations of the keys. They are written again by
//! `UPDATE=1 cargo test -p splitter-config --test it documents`.

use std::path::Path;

use splitter_config::{Config, FabricConfig, FabricRole, example, reference};

const COMMAND: &str = "UPDATE=1 cargo test -p splitter-config --test it documents";

/// Compares a committed file with what it ought to be, or writes it where `UPDATE` is set.
#[track_caller]
fn is_up_to_date(path: &str, wanted: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&committed);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, wanted).expect("the file can be written");
    } else {
        let differs = committed
            .lines()
            .zip(wanted.lines())
            .find(|(one, other)| one != other);
        assert!(
            committed == wanted,
            "{} is not what the keys declare; run `{COMMAND}`. The first line that differs: {differs:#?}",
            path.display()
        );
    }
}

#[test]
fn example_file_is_what_the_keys_declare() {
    is_up_to_date("splitter.example.toml", |_| example());
}

#[test]
fn reference_page_is_what_the_keys_declare() {
    is_up_to_date("../../../docs/src/reference/configuration.md", |page| {
        reference::fill(page).expect("the markers name sections")
    });
}

#[test]
fn page_of_a_fabric_is_what_the_keys_declare() {
    is_up_to_date("../../../docs/src/reference/fabric.md", |page| {
        reference::fill(page).expect("the markers name sections")
    });
}

/// The files that the page shows are right.
#[test]
fn files_of_a_leaf_and_of_a_spine_are_right() {
    let page = include_str!("../../../../../docs/src/how-to/fabric.md");
    let shown = page.split("```toml").skip(1);
    let shown = shown.filter_map(|rest| Some(rest.split_once("```")?.0));
    let roles: Vec<_> = shown
        .map(|text| {
            FabricConfig::parse(text, "fabric.toml")
                .expect(text)
                .fabric
                .role
        })
        .collect();
    assert_eq!(roles, [FabricRole::Leaf, FabricRole::Spine]);
}

#[test]
fn reference_page_has_a_table_for_every_section() {
    let page = include_str!("../../../../../docs/src/reference/configuration.md");
    for key in splitter_config::keys() {
        let table = match key.section {
            "" => "top",
            "short" | "long" => "class",
            section => section,
        };
        let marker = format!("<!-- keys: {table} -->");
        assert!(page.contains(&marker), "{marker} for {}", key.name);
    }
}

#[test]
fn marker_without_a_section_or_an_end_is_refused() {
    for page in [
        "<!-- keys: zebra -->\n<!-- end -->",
        "<!-- keys: flows -->\n",
    ] {
        assert!(reference::fill(page).is_err(), "{page}");
    }
}

#[test]
fn example_is_a_right_configuration() {
    Config::parse(&example(), "splitter.example.toml").expect("the example is right");
}
