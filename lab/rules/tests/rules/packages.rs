//! Rule: a package carries what somebody who finds it in a registry needs.
//!
//! That each compiles from what is in its archive is a step of `cargo xtask test`.

use std::{collections::BTreeSet, path::Path};

use workspace_rules::Package;

use crate::{WORKSPACE, assert_none};

#[test]
fn packages_carry_their_licences() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.published() {
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let file = WORKSPACE.root.join(&package.directory).join(licence);
            let own = std::fs::read(file).ok();
            let of_the_workspace = std::fs::read(WORKSPACE.root.join(licence)).ok();
            if own.is_none() || own != of_the_workspace {
                let directory = package.directory.display();
                wrong.push(format!(
                    "{directory} has no {licence}: link it to the workspace's"
                ));
            }
        }
    }
    assert_none("packages without licence texts", &wrong);
}

#[test]
fn packages_say_where_they_come_from() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.published() {
        let manifest = &package.manifest;
        let fields = [
            ("description", manifest.description.is_some()),
            ("license", manifest.license.is_some()),
            ("repository", manifest.repository.is_some()),
            ("rust-version", manifest.rust_version.is_some()),
            ("keywords", !manifest.keywords.is_empty()),
            ("categories", !manifest.categories.is_empty()),
        ];
        let missing = fields.iter().filter(|(_, is_there)| !is_there);
        wrong.extend(missing.map(|(field, _)| format!("{}: no {field}", package.name)));
    }
    assert_none("fields that a registry shows", &wrong);
}

#[test]
fn all_packages_promise_one_oldest_compiler() {
    let versions = WORKSPACE.packages.values();
    let mut versions: Vec<_> = versions
        .map(|package| &package.manifest.rust_version)
        .collect();
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 1, "{versions:?}");
}

#[test]
fn packages_introduce_themselves() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.published() {
        let faults = faults(package).into_iter();
        wrong.extend(faults.map(|fault| format!("{}: {fault}", package.name)));
    }
    assert_none("packages that do not introduce themselves", &wrong);
}

fn faults(package: &Package) -> Vec<&'static str> {
    let manifest = &package.manifest;
    let mut faults = Vec::new();
    let readme = manifest.readme.as_deref().map(Path::new);
    match readme.map(|readme| WORKSPACE.root.join(&package.directory).join(readme)) {
        Some(readme) if readme.is_file() => {}
        _ => faults.push("no README"),
    }
    if package.library.is_some() {
        let metadata = manifest.metadata.as_ref();
        if metadata
            .and_then(|metadata| metadata.pointer("/docs/rs"))
            .is_none()
        {
            faults.push("no [package.metadata.docs.rs]");
        }
        if manifest.documentation.is_none() {
            faults.push("no documentation");
        }
    }
    faults
}

#[test]
fn the_layout_lists_every_package() {
    let page = std::fs::read_to_string(WORKSPACE.root.join("CONTRIBUTING.md")).unwrap();
    let rows = WORKSPACE.packages.values().map(|package| {
        format!(
            "| `{}/` | `{}` |",
            package.directory.display(),
            package.name
        )
    });
    let wrong: Vec<_> = rows.filter(|row| !page.contains(row)).collect();
    assert_none("rows that CONTRIBUTING.md's layout lacks", &wrong);
}

#[test]
fn the_book_lists_the_documentation_of_every_library() {
    let page = std::fs::read_to_string(WORKSPACE.root.join("docs/src/reference/api.md")).unwrap();
    let rows = page.lines().filter(|it| it.starts_with("| [`"));
    let rows: BTreeSet<_> = rows.map(str::to_owned).collect();
    let wanted: BTreeSet<_> = WORKSPACE.published().filter_map(row_of_library).collect();
    let wrong: Vec<_> = rows.symmetric_difference(&wanted).cloned().collect();
    assert_none("rows that the page has too many or too few", &wrong);
}

/// Its name with a link, the name that programs use where it is another one, and what it says of itself.
fn row_of_library(package: &Package) -> Option<String> {
    let (name, manifest) = (&package.name, &package.manifest);
    let library = package.library.as_ref()?;
    let [link, description] = [&manifest.documentation, &manifest.description]
        .map(|field| field.as_deref().unwrap_or_default());
    let used = match *library == name.replace('-', "_") {
        true => String::new(),
        false => format!(", as `{library}`"),
    };
    Some(format!("| [`{name}`]({link}){used} | {description} |"))
}

#[test]
fn paths_that_contributors_are_sent_to_exist() {
    let page = std::fs::read_to_string(WORKSPACE.root.join("CONTRIBUTING.md")).unwrap();
    let is_path = |text: &&str| {
        let letters = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
        let first = text.split('/').next().unwrap_or_default();
        let is_whole = WORKSPACE.root.join(first).is_dir() || text.matches('/').count() > 1;
        text.contains('/') && text.chars().all(letters) && is_whole
    };
    let wrong: Vec<_> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_path)
        // Written by the full tier when it has passed.
        .filter(|path| *path != "docs/full-tier.json")
        .filter(|path| !WORKSPACE.root.join(path).exists())
        .map(str::to_owned)
        .collect();
    assert_none("paths in CONTRIBUTING.md", &wrong);
}
