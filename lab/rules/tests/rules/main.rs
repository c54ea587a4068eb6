//! The rules of CONTRIBUTING.md that a program can hold.

mod arrows;
mod docs;
mod packages;
mod packaging;
mod reading;
mod size;
mod terms;

use std::path::Path;

use workspace_rules::{Crate, Package, Workspace};

fn workspace() -> Workspace {
    Workspace::read().unwrap()
}

/// The crates of a package: its library and its programs.
fn crates(workspace: &Workspace, package: &Package) -> Vec<Crate> {
    let roots = package.roots.iter();
    roots.map(|root| read(&workspace.root, root)).collect()
}

fn read(root: &Path, file: &Path) -> Crate {
    let mut krate = Crate::read(&root.join(file)).unwrap();
    for module in &mut krate.modules {
        if let Ok(relative) = module.file.strip_prefix(root) {
            module.file = relative.to_owned();
        }
    }
    krate
}

/// Fails with all that is wrong at once.
#[track_caller]
fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}
