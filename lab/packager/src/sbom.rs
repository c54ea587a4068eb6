//! Bills of materials in CycloneDX 1.5: which crates a program is made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use serde_json::{Value, json};

use crate::{Package, Release, contents::BUILT_TOGETHER, output};

/// A bill of materials of a package's program, from cargo's own resolution for the target.
///
/// # Errors
/// When cargo cannot tell, or a crate is not in `Cargo.lock`.
pub fn of(release: &Release, package: &Package) -> Result<Value> {
    let (mut tree, mut checksums) = (Tree::default(), BTreeMap::new());
    for workspace in workspaces(package) {
        tree.read(&list(release, &workspace)?)?;
        tree.keep_what_is_needed_by(package.cargo_package);
        let lock = format!("{}Cargo.lock", workspace.directory);
        read_checksums(&String::from_utf8(release.source(&lock)?)?, &mut checksums)?;
    }
    let (root, parts) = tree.crates.split_first().context("cargo shows no crates")?;
    let components: Vec<Value> = parts.iter().map(|it| component(it, &checksums)).collect();
    let dependencies: Vec<Value> = tree
        .dependencies
        .iter()
        .map(|(of, on)| json!({"ref": of, "dependsOn": on}))
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date("+%Y-%m-%dT%H:%M:%SZ")?,
            "component": {
                "type": "application",
                "bom-ref": root.purl(),
                "name": package.program,
                "version": root.version,
                "purl": root.purl(),
                "licenses": [{"expression": root.licence}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Holds a bill against the program itself: each crate whose path the program or its line tables
/// name must be on it, and each part has a licence and, from a registry, a checksum.
///
/// # Errors
/// With what is missing.
pub fn check(release: &Release, package: &Package, bill: &Value) -> Result<()> {
    let components = bill["components"].as_array().context("no components")?;
    let mut listed = BTreeSet::new();
    for part in components {
        let text = |key: &str| part[key].as_str().unwrap_or_default();
        let has_licence = part["licenses"][0]["expression"] != "";
        let has_source = part["hashes"][0]["content"].is_string() || text("publisher") == OWN;
        if !has_licence || !has_source {
            bail!("{} has no licence or no checksum in the bill", text("name"));
        }
        listed.insert(format!("{}-{}", text("name"), text("version")));
    }
    let mut named = BTreeSet::new();
    for file in [
        package.program.to_owned(),
        format!("{}.debug", package.program),
    ] {
        named.extend(crates_named_in(&fs::read(release.programs.join(file))?));
    }
    if named.len() < FEWEST_NAMED {
        bail!(
            "{} names {} crates, which is too few to check its bill by",
            package.program,
            named.len()
        );
    }
    let is_of_tests = |it: &&String| {
        let mut of_tests = release.named_by_tests.iter();
        of_tests.any(|name| it.rsplit_once('-').is_some_and(|of| of.0 == *name))
    };
    let missing = named.difference(&listed).filter(|it| !is_of_tests(it));
    let missing: Vec<_> = missing.cloned().collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        bail!("the bill of {} lacks {missing}", package.program);
    }
    Ok(())
}

/// Any of our programs is made of more crates that can panic.
const FEWEST_NAMED: usize = 3;

/// The publisher of crates of this workspace, which have no checksum of a registry.
const OWN: &str = "The flow prioritisation developers";

/// Directories below which sources of registries lie: as released programs name them, and as cargo
/// unpacks them, with the name of a registry between.
const OF_REGISTRIES: [&[u8]; 2] = [b"/usr/src/crates/", b"/registry/src/"];

fn crates_named_in(program: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (marker, skipped) in OF_REGISTRIES.iter().zip([0, 1]) {
        for start in memmem::find_iter(program, marker) {
            let mut parts = program[start + marker.len()..].split(|byte| *byte == b'/');
            let Some(name) = parts.nth(skipped) else {
                continue;
            };
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
            if name.len() < 100 && name.contains(&b'-') && name.iter().all(is_name) {
                found.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    licence: String,
    is_own: bool,
    /// Run by the compiler, and no part of the program.
    is_macro: bool,
}

impl Crate {
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

fn component(part: &Crate, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": part.purl(),
        "name": part.name,
        "version": part.version,
        "purl": part.purl(),
        // What the compiler runs is no part of the program ("excluded" in CycloneDX).
        "scope": if part.is_macro { "excluded" } else { "required" },
        "licenses": [{"expression": part.licence}],
    });
    if part.is_own {
        component["publisher"] = OWN.into();
    }
    if let Some(sum) = checksums.get(&(part.name.clone(), part.version.clone())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// The crates of a program, itself first, and which uses which, by their package URLs.
#[derive(Debug, Default)]
struct Tree {
    crates: Vec<Crate>,
    dependencies: BTreeMap<String, BTreeSet<String>>,
}

/// A cargo workspace of which a package has a part.
struct Workspace {
    /// Where it lies in the source tree, with a slash at its end if it is not the root.
    directory: &'static str,
    /// What is built of it in one call of cargo.
    packages: &'static [&'static str],
    /// What it is built for, where that is not the target of the release.
    target: Option<&'static str>,
}

/// The program's own workspace, and that of the kernel programs which it may carry inside.
fn workspaces(package: &Package) -> Vec<Workspace> {
    let mut workspaces = vec![Workspace {
        directory: "",
        packages: &BUILT_TOGETHER,
        target: None,
    }];
    if package.has_kernel_programs {
        workspaces.push(Workspace {
            directory: "splitter-ebpf/",
            packages: &["splitter-ebpf"],
            target: Some("bpfel-unknown-none"),
        });
    }
    workspaces
}

/// The crates of a workspace's packages, as [`Tree::read`] takes them. Features are those of all of
/// them, as where they are built: what one enables of a crate, the others' programs have, too.
fn list(release: &Release, workspace: &Workspace) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = workspace.target.unwrap_or(&release.target.triple);
    cargo
        .current_dir(release.root.join(workspace.directory))
        .args(["tree", "--locked", "--edges=normal"])
        .args(["--prefix=depth", "--format={p}|{l}"])
        .args(
            workspace
                .packages
                .iter()
                .map(|it| format!("--package={it}")),
        )
        .args(["--target", target]);
    output(&mut cargo)
}

impl Tree {
    /// Adds crates from lines such as `2nix v0.31.1|MIT`, or `1xyz v1.0.0 (proc-macro)|MIT (*)`, with the
    /// depth in front. What is added later hangs below the first crate of all.
    fn read(&mut self, text: &str) -> Result<()> {
        let first = self.crates.first().map(Crate::purl);
        let mut above: Vec<String> = Vec::new();
        for line in text.lines().filter(|it| !it.is_empty()) {
            let name = line.trim_start_matches(|it: char| it.is_ascii_digit());
            let depth: usize = line[..line.len() - name.len()].parse()?;
            let found = read_crate(name).with_context(|| format!("cannot read {line}"))?;
            above.truncate(depth);
            if let Some(parent) = above.last().or(first.as_ref()) {
                let uses = self.dependencies.entry(parent.clone()).or_default();
                uses.insert(found.purl());
            }
            above.push(found.purl());
            if !self.crates.iter().any(|it| it.purl() == found.purl()) {
                self.crates.push(found);
            }
        }
        Ok(())
    }

    /// Leaves a crate of this project, which becomes the first, and what it needs.
    fn keep_what_is_needed_by(&mut self, root: &str) {
        let is_root = |it: &Crate| it.name == root && it.is_own;
        let Some(at) = self.crates.iter().position(is_root) else {
            return;
        };
        let root = self.crates.remove(at);
        let (mut needed, mut open) = (BTreeSet::new(), vec![root.purl()]);
        self.crates.insert(0, root);
        while let Some(next) = open.pop() {
            if needed.insert(next.clone()) {
                let uses = self.dependencies.get(&next);
                open.extend(uses.into_iter().flatten().cloned());
            }
        }
        self.crates.retain(|it| needed.contains(&it.purl()));
        self.dependencies.retain(|of, _| needed.contains(of));
    }
}

fn read_crate(text: &str) -> Option<Crate> {
    let (identity, licence) = text.split_once('|')?;
    let mut words = identity.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some(Crate {
        name: name.to_owned(),
        version: version.to_owned(),
        // As SPDX writes it; some crates still have the slash of old.
        licence: licence.trim_end_matches("(*)").trim().replace('/', " OR "),
        is_own: identity.contains("(/"),
        is_macro: identity.contains("(proc-macro)"),
    })
}

fn read_checksums(lock: &str, sums: &mut BTreeMap<(String, String), String>) -> Result<()> {
    let lock: toml::Table = lock.parse().context("cannot read Cargo.lock")?;
    let packages = lock["package"].as_array().context("no packages in it")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    sums.extend(packages.iter().filter_map(|it| {
        let key = (text(it, "name")?, text(it, "version")?);
        Some((key, text(it, "checksum")?))
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_read_with_who_uses_whom() {
        let text = "0own v0.1.0 (/src/own)|MIT\n1log v0.4.35|MIT OR Apache-2.0\n\
                    1serde_derive v1.0.1 (proc-macro)|MIT/Apache-2.0\n2syn v2.0.1|MIT\n\
                    1syn v2.0.1|MIT (*)\n";
        let mut tree = Tree::default();
        tree.read(text).unwrap();
        assert_eq!(tree.crates.len(), 4);
        assert!(tree.crates[0].is_own && !tree.crates[1].is_own);
        assert!(tree.crates[2].is_macro);
        assert_eq!(tree.crates[2].licence, "MIT OR Apache-2.0");
        let of_own = &tree.dependencies["pkg:cargo/own@0.1.0"];
        assert_eq!(of_own.len(), 3);
        assert!(tree.dependencies["pkg:cargo/serde_derive@1.0.1"].contains("pkg:cargo/syn@2.0.1"));

        tree.read("0inside v0.1.0 (/src/inside)|MIT\n").unwrap();
        assert!(tree.dependencies["pkg:cargo/own@0.1.0"].contains("pkg:cargo/inside@0.1.0"));
    }

    #[test]
    fn what_another_program_needs_is_left_out() {
        let text = "0other v0.1.0 (/src/other)|MIT\n1rand v0.10.3|MIT\n2zeroize v1.9.1|MIT\n\
                    1ring v0.17.0|MIT\n\n0own v0.1.0 (/src/own)|MIT\n1rand v0.10.3|MIT (*)\n";
        let mut tree = Tree::default();
        tree.read(text).unwrap();
        tree.keep_what_is_needed_by("own");
        let names: Vec<_> = tree.crates.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["own", "rand", "zeroize"]);
        assert!(!tree.dependencies.contains_key("pkg:cargo/other@0.1.0"));
    }

    #[test]
    fn crates_are_found_by_the_paths_that_programs_name() {
        let program = b"\0/usr/src/crates/tokio-1.54.0/src/lib.rs\0/home/x/.cargo/registry/src/index-1/nix-0.31.1/src/a.rs\xff";
        let found: Vec<_> = crates_named_in(program).into_iter().collect();
        assert_eq!(found, ["nix-0.31.1", "tokio-1.54.0"]);
    }
}
