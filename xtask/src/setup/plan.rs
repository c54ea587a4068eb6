//! What is to be done about what is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use super::{
    apt::Apt,
    needs::{Kind, NEEDS, Need, Purpose},
    rust::{CargoTool, MINIMUM_VERSION},
};

/// Where packages come from on this system.
pub(super) enum Availability {
    /// Debian or Ubuntu.
    Apt(Apt),
    /// Something else, by its name.
    Unknown(String),
}

impl Availability {
    fn has(&self, package: &str) -> bool {
        match self {
            Availability::Apt(apt) => apt.has_candidate(package),
            Availability::Unknown(_) => false,
        }
    }
}

/// The steps, and what no step here can do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be installed with apt, sorted.
    pub(super) packages: Vec<String>,
    pub(super) rust_components: Vec<&'static str>,
    pub(super) bpf_linker: bool,
    /// From rustup and registries, on any system; so are the tools and modules below.
    pub(super) minimum_toolchain: bool,
    pub(super) cargo_tools: Vec<&'static CargoTool>,
    pub(super) python_environment: bool,
    pub(super) crates: bool,
    /// What the user has to do, if anything.
    pub(super) by_hand: Option<String>,
}

impl Plan {
    pub(super) fn new(missing: &[&'static Need], availability: &Availability) -> Self {
        let (from_registries, missing): (Vec<&'static Need>, Vec<_>) =
            missing.iter().partition(|need| {
                matches!(
                    need.kind,
                    Kind::MinimumToolchain
                        | Kind::CargoTool(_)
                        | Kind::PythonEnvironment
                        | Kind::Crates
                )
            });
        let mut plan = match availability {
            Availability::Unknown(system) => Self {
                by_hand: by_hand_elsewhere(system, &missing),
                ..Self::default()
            },
            Availability::Apt(_) => Self::with_apt(&missing, |package| availability.has(package)),
        };
        for need in from_registries {
            match &need.kind {
                Kind::CargoTool(tool) => plan.cargo_tools.push(tool),
                Kind::PythonEnvironment => plan.python_environment = true,
                Kind::Crates => plan.crates = true,
                _ => plan.minimum_toolchain = true,
            }
        }
        plan
    }

    fn with_apt(missing: &[&Need], has: impl Fn(&str) -> bool) -> Self {
        let mut plan = Self::default();
        let mut packages = BTreeSet::new();
        let mut unavailable = Vec::new();
        let mut no_compiler = false;
        for need in missing {
            match need.kind {
                Kind::Program {
                    packages: names, ..
                } => match names.iter().find(|name| has(name)) {
                    Some(package) => _ = packages.insert(*package),
                    None => unavailable.push(need.name()),
                },
                Kind::Package(package) if has(package) => _ = packages.insert(package),
                Kind::Package(_) => no_compiler = true,
                Kind::PythonModule { package, .. } if has(package) => {
                    packages.insert(package);
                }
                Kind::PythonModule { .. } => unavailable.push(need.name()),
                Kind::RustComponent { component, .. } => plan.rust_components.push(component),
                Kind::BpfLinker => plan.bpf_linker = true,
                Kind::MinimumToolchain
                | Kind::CargoTool(_)
                | Kind::PythonEnvironment
                | Kind::Crates => {}
            }
        }
        if no_compiler {
            // Half a toolchain is of no use: leave all of it to the other pair.
            packages.retain(|package| !is_for_ebpf_alone(package));
            plan.bpf_linker = false;
        }
        plan.packages = packages.into_iter().map(str::to_owned).collect();
        plan.by_hand = remedy(&unavailable, no_compiler);
        plan
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("Nothing to do.");
        }
        let mut steps = Vec::new();
        if !self.packages.is_empty() {
            steps.push(format!(
                "apt-get install --no-install-recommends {}",
                self.packages.join(" ")
            ));
        }
        for component in &self.rust_components {
            steps.push(format!("rustup component add {component}"));
        }
        if self.bpf_linker {
            steps.push("cargo install bpf-linker, into a cache of its own".to_owned());
        }
        if self.minimum_toolchain {
            steps.push(format!(
                "rustup toolchain install {MINIMUM_VERSION}, into a cache of its own"
            ));
        }
        for tool in &self.cargo_tools {
            steps.push(format!(
                "cargo install {}, into a cache of its own",
                tool.name
            ));
        }
        if self.python_environment {
            let step = "python3 -m venv and pip install noiseprotocol, into a cache of their own";
            steps.push(step.to_owned());
        }
        if self.crates {
            steps.push("cargo fetch, in each directory with a Cargo.lock of its own".to_owned());
        }
        steps.extend(self.by_hand.clone());
        f.write_str(&steps.join("\n"))
    }
}

/// What is there and what is not, and what each is for.
pub(super) fn table(purposes: &[Purpose], missing: &[&Need]) -> String {
    let mut table = String::new();
    let wanted: Vec<_> = NEEDS.iter().filter(|need| need.serves(purposes)).collect();
    let width = wanted.iter().map(|need| need.name().len()).max();
    for need in wanted {
        let is_missing = missing.iter().any(|other| std::ptr::eq(*other, need));
        let state = if is_missing { "missing" } else { "ok" };
        let width = width.unwrap_or_default();
        let _ = writeln!(table, "{state:7}  {:width$}  {}", need.name(), need.why);
    }
    table
}

fn is_for_ebpf_alone(package: &str) -> bool {
    NEEDS
        .iter()
        .any(|need| matches!(need.kind, Kind::Package(name) if name == package))
}

fn remedy(unavailable: &[String], no_compiler: bool) -> Option<String> {
    let mut sentences = Vec::new();
    if !unavailable.is_empty() {
        sentences.push(format!(
            "No package source of this system has {}; install it by hand.",
            unavailable.join(", ")
        ));
    }
    if no_compiler {
        sentences.push(NIGHTLY_REMEDY.to_owned());
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn by_hand_elsewhere(system: &str, missing: &[&Need]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let mut by_reason: BTreeMap<bool, Vec<String>> = BTreeMap::new();
    for need in missing {
        by_reason
            .entry(need.serves(&[Purpose::Ebpf]))
            .or_default()
            .push(need.name());
    }
    let system = if system.is_empty() {
        "this system"
    } else {
        system
    };
    let mut sentences = vec![format!(
        "setup installs packages on Debian and Ubuntu only, and this is {system}."
    )];
    if let Some(programs) = by_reason.get(&false) {
        sentences.push(format!(
            "Install these with its own package manager and run the task again: {}.",
            programs.join(", ")
        ));
    }
    if by_reason.contains_key(&true) {
        sentences.push(NIGHTLY_REMEDY.to_owned());
    }
    Some(sentences.join(" "))
}

/// The pair of compilers that works on any distribution.
pub(crate) const NIGHTLY_REMEDY: &str = "To build the kernel programs, run `rustup toolchain install nightly --component rust-src` and `cargo install bpf-linker`.";

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(names: &[&str]) -> Vec<&'static Need> {
        let found: Vec<_> = NEEDS
            .iter()
            .filter(|need| names.contains(&need.name().as_str()))
            .collect();
        assert_eq!(found.len(), names.len(), "{names:?}");
        found
    }

    #[test]
    fn chooses_the_first_package_that_is_to_be_had() {
        let missing = needs(&["nginx", "ip"]);
        let plan = Plan::with_apt(&missing, |package| package != "nginx-light");
        assert_eq!(plan.packages, ["iproute2", "nginx"]);
        assert_eq!(plan.by_hand, None);
        let plan = Plan::with_apt(&missing, |_| true);
        assert_eq!(plan.packages, ["iproute2", "nginx-light"]);
    }

    #[test]
    fn installs_no_half_of_a_compiler() {
        let missing = needs(&["ip", "rustc-web", "g++", "llvm-22-dev", "bpf-linker 0.13.0"]);
        let plan = Plan::with_apt(&missing, |package| package != "rustc-web");
        assert_eq!(plan.packages, ["iproute2"]);
        assert!(!plan.bpf_linker);
        assert!(plan.by_hand.unwrap().contains("nightly"));

        let plan = Plan::with_apt(&missing, |_| true);
        assert_eq!(
            plan.packages,
            ["g++", "iproute2", "llvm-22-dev", "rustc-web"]
        );
        assert!(plan.bpf_linker);
    }

    #[test]
    fn a_module_of_python_comes_from_its_package() {
        let missing = needs(&["python3-venv"]);
        let plan = Plan::with_apt(&missing, |_| true);
        assert_eq!(plan.packages, ["python3-venv"]);
        let plan = Plan::with_apt(&missing, |_| false);
        assert!(plan.by_hand.unwrap().contains("has python3-venv;"));
    }

    #[test]
    fn cargo_rustup_and_pip_install_on_any_system() {
        let minimum = format!("Rust {MINIMUM_VERSION}");
        let missing = needs(&[
            "cargo-deny 0.20.2",
            &minimum,
            "Python's noiseprotocol",
            "crates of examples",
        ]);
        let elsewhere = Availability::Unknown("Fedora Linux 42".to_owned());
        let plan = Plan::new(&missing, &elsewhere);
        assert_eq!(plan.by_hand, None);
        assert!(plan.minimum_toolchain);
        assert_eq!(plan.cargo_tools.len(), 1);
        assert!(plan.python_environment);
        assert!(plan.to_string().contains("pip install"), "{plan}");
        assert!(plan.to_string().contains("cargo fetch"), "{plan}");
    }

    #[test]
    fn the_table_says_what_is_missing() {
        let table = table(&[Purpose::Ebpf], &needs(&["bpf-linker 0.13.0"]));
        assert!(table.contains("ok       rustc-web"), "{table}");
        assert!(table.contains("missing  bpf-linker 0.13.0"), "{table}");
        assert!(!table.contains("nginx"), "{table}");
    }

    #[test]
    fn elsewhere_prints_the_list() {
        let elsewhere = Availability::Unknown("Fedora Linux 42".to_owned());
        let plan = Plan::new(&needs(&["ip", "nft"]), &elsewhere);
        let message = plan.by_hand.unwrap();
        assert!(message.contains("Fedora Linux 42"));
        assert!(message.ends_with("again: ip, nft."));
        assert!(Plan::new(&[], &elsewhere).is_empty());
    }
}
