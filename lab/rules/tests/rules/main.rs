//! The rules of CONTRIBUTING.md that a program can hold.

mod compose;
mod dependencies;
mod docs;
mod errors;
mod exposure;
mod guidelines;
mod packages;
mod packaging;
mod reading;
mod size;
mod terms;

use std::{path::Path, sync::LazyLock};

use workspace_rules::{Crate, Cycle, Item, Reach, Workspace};

/// The workspace, read once for all tests.
static WORKSPACE: LazyLock<Workspace> = LazyLock::new(|| Workspace::read().unwrap());

/// What its crates hold, read once for all tests.
static CRATES: LazyLock<Vec<Summary>> = LazyLock::new(|| {
    let packages = WORKSPACE.packages.values();
    let roots = packages.flat_map(|package| package.roots.iter().map(|root| (&package.name, root)));
    roots
        .map(|(package, root)| Summary::read(package, root))
        .collect()
});

/// What the tests look at in a crate, which is a package's library or a program of it.
struct Summary {
    package: &'static str,
    root: String,
    code_lines: usize,
    public_items: Vec<Item>,
    /// Items that other modules of the crate see, public ones among them.
    items: Vec<Item>,
    /// Modules that need each other, each circle with its arrows.
    circles: Vec<Vec<String>>,
}

impl Summary {
    fn read(package: &'static str, root: &Path) -> Self {
        let mut krate = Crate::read(&WORKSPACE.root.join(root)).unwrap();
        for module in &mut krate.modules {
            if let Ok(relative) = module.file.strip_prefix(&WORKSPACE.root) {
                module.file = relative.to_owned();
            }
        }
        let arrows = workspace_rules::module_dependencies(&krate);
        let circles = workspace_rules::cycles(&arrows)
            .into_iter()
            .map(|Cycle(modules)| {
                let inside = |name: &String| modules.contains(name);
                let inner =
                    arrows
                        .iter()
                        .filter(|(from, _)| inside(from))
                        .flat_map(|(from, to)| {
                            let to = to.iter().filter(|(to, _)| inside(to));
                            to.map(move |(to, file)| format!("{from} -> {to} ({file})"))
                        });
                inner.collect()
            });
        Self {
            package,
            root: root.display().to_string(),
            code_lines: workspace_rules::code_lines(&krate),
            public_items: workspace_rules::items(&krate, Reach::Public),
            items: workspace_rules::items(&krate, Reach::Crate),
            circles: circles.collect(),
        }
    }
}

/// The crates of a package.
fn crates_of(package: &str) -> impl Iterator<Item = &'static Summary> {
    CRATES.iter().filter(move |krate| krate.package == package)
}

/// Fails with all that is wrong at once.
#[track_caller]
fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}
