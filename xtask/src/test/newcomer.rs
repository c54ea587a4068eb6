//! The first steps of somebody who has no clone: Cloudburst's packages lie in a registry of their own, and
//! programs elsewhere add them from there. The README's program, the examples as they stand, the C program
//! and the wheel for Python are built from what is in the archives, and run.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{libtest::Tally, packages};
use crate::{
    command::{self, Run},
    project::{Project, find_program},
};

/// The packages that an application may come to name; what they need themselves comes with them.
const PACKAGES: [&str; 3] = [LIBRARY, C_INTERFACE, "cloudburst-proto"];
const LIBRARY: &str = "cloudburst-fec";
const C_INTERFACE: &str = "cloudburst-ffi";

/// Examples that end by themselves, and what they say when all went well. The others need a key and a peer, and
/// are only built.
const EXAMPLES: [(&str, &str); 9] = [
    ("event_loop", "burst: tsrub"),
    ("group_send", "that is a majority"),
    ("in_memory_test", "when the partition was over"),
    ("ping", "4: "),
    ("records", "records, the first is"),
    ("request_response", "burst: many at once"),
    ("telemetry", "32 sensors, "),
    ("two_interfaces", "Good"),
    ("virtual_ip", "after:  this is backup"),
];

/// How long each program may take; the longest takes some seconds.
const SECONDS: &str = "60";

/// Makes the registry, and tries each of its uses.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let newcomer = match Newcomer::new(project) {
        Ok(newcomer) => newcomer,
        Err(error) if lacks_network(&format!("{error:#}")) => {
            let reason = "what the packages depend on cannot be fetched from here";
            return Ok(Tally::skip("packages from a registry", reason));
        }
        Err(error) => return Err(error),
    };
    let trials: [(&str, &str, Trial); 4] = [
        ("the README's program", "cargo", Newcomer::readme),
        ("the examples", "cargo", Newcomer::examples),
        ("the C program", "cc", Newcomer::c_programs),
        ("the Python wheel", "python3", Newcomer::wheel),
    ];
    let mut tally = Tally::default();
    for (what, needs, trial) in trials {
        let name = format!("from a registry: {what}");
        if find_program(needs).is_none() && needs != "cargo" {
            tally.add(Tally::skip(&name, &format!("{needs} is not there")));
            continue;
        }
        tally.add(match trial(&newcomer) {
            Ok(()) => Tally::success(),
            Err(error) if error.is::<NoNetwork>() => {
                Tally::skip(&name, "pip cannot fetch setuptools without a network")
            }
            Err(error) => Tally::failure_for(&name, &format!("{error:#}")),
        });
    }
    Ok(tally)
}

type Trial = fn(&Newcomer) -> Result<()>;

/// Somebody with a registry and a directory that lies in nobody's workspace.
struct Newcomer {
    registry: PathBuf,
    /// What is built, apart from what this workspace builds.
    target: PathBuf,
    home: PathBuf,
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        for directory in [&self.home, &self.registry, &self.target] {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Newcomer {
    fn new(project: &Project) -> Result<Self> {
        let place = project.target.join("newcomer");
        if place.exists() {
            // To cargo, what a registry has never changes: what was built of it before would be used again.
            fs::remove_dir_all(&place)
                .with_context(|| format!("cannot remove {}", place.display()))?;
        }
        let home = std::env::temp_dir().join(format!("newcomer-{}", std::process::id()));
        let newcomer = Self {
            registry: place.join("registry"),
            target: place.join("target"),
            home,
        };
        fs::create_dir_all(newcomer.home.join(".cargo"))
            .with_context(|| format!("cannot make {}", newcomer.home.display()))?;
        newcomer.take_in_dependencies(project)?;
        newcomer.publish(project)?;
        // In place of the public registry, as a company's mirror would be.
        let config = format!(
            "[source.crates-io]\nreplace-with = \"local\"\n[source.local]\ndirectory = \"{}\"\n",
            newcomer.registry.display()
        );
        fs::write(newcomer.home.join(".cargo/config.toml"), config)?;
        Ok(newcomer)
    }

    /// What the packages and the examples depend on, of all systems: cargo chooses among them all.
    fn take_in_dependencies(&self, project: &Project) -> Result<()> {
        let draft = self.home.join("draft");
        fs::create_dir_all(draft.join("src"))?;
        fs::write(draft.join("src/lib.rs"), "")?;
        let root = project.root.join("cloudburst");
        let manifest = format!(
            "[package]\nname = \"draft\"\nedition = \"2024\"\n[dependencies]\n\
             {LIBRARY} = {{ path = \"{root}\" }}\n\
             {C_INTERFACE} = {{ path = \"{root}/crates/ffi\" }}\n\
             mio = \"1\"\ntempfile = \"3\"\ntokio = {{ version = \"1\", features = [\"full\", \"test-util\"] }}\n",
            root = root.display(),
        );
        fs::write(draft.join("Cargo.toml"), manifest)?;
        // The versions that this workspace is tested with.
        fs::copy(project.root.join("Cargo.lock"), draft.join("Cargo.lock"))?;
        command::cargo()
            .args(["vendor", "--quiet", "--versioned-dirs"])
            .arg(&self.registry)
            .current_dir(&draft)
            .read()
            .map(drop)
    }

    /// Packs the packages and adds their archives to the registry.
    fn publish(&self, project: &Project) -> Result<()> {
        let packages = packages::with_what_they_need(project, &PACKAGES)?;
        command::cargo()
            .args([
                "package",
                "--quiet",
                "--no-verify",
                "--locked",
                "--allow-dirty",
            ])
            .args(packages.iter().map(|name| format!("--package={name}")))
            .env("CARGO_TARGET_DIR", &self.target)
            .current_dir(&project.root)
            .run()?;
        for package in &packages {
            let unpacked = self.unpack(package, &self.registry)?;
            // Of the archive alone: lock files in other archives name it.
            let sum = Run::new("sha256sum").arg(self.archive(package)).read()?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            let checksums = format!("{{\"files\":{{}},\"package\":\"{sum}\"}}");
            fs::write(unpacked.join(".cargo-checksum.json"), checksums)?;
        }
        Ok(())
    }

    /// Unpacks an archive into a directory, and returns where its files lie then.
    fn unpack(&self, package: &str, directory: &Path) -> Result<PathBuf> {
        Run::new("tar")
            .arg("xzf")
            .arg(self.archive(package))
            .arg("-C")
            .arg(directory)
            .run()?;
        Ok(directory.join(versioned(package)))
    }

    fn archive(&self, package: &str) -> PathBuf {
        let name = format!("{}.crate", versioned(package));
        self.target.join("package").join(name)
    }

    fn cargo(&self, directory: &Path) -> Run {
        command::cargo()
            .current_dir(directory)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("RUSTFLAGS")
    }

    /// What the library's package says of itself.
    fn page(&self) -> Result<String> {
        let page = self.unpack(LIBRARY, &self.home)?.join("README.md");
        fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))
    }

    /// A new program that has added the library, what that says to put into the manifest, and these packages with
    /// these features.
    fn program(&self, name: &str, others: &[[&str; 2]]) -> Result<PathBuf> {
        self.cargo(&self.home)
            .args(["new", "--quiet", "--vcs=none", name])
            .run()?;
        let directory = self.home.join(name);
        let add = || self.cargo(&directory).args(["add", "--quiet"]);
        add().arg(LIBRARY).run()?;
        for [package, features] in others {
            add().args([package, "--features", features]).run()?;
        }
        let manifest = directory.join("Cargo.toml");
        let written = fs::read_to_string(&manifest)?;
        let page = self.page()?;
        let advised = between(&page, "```toml\n", "```")?;
        fs::write(&manifest, format!("{written}\n{advised}"))?;
        Ok(directory)
    }

    /// As the package's README says: the command that adds tokio, and the program after it.
    fn readme(&self) -> Result<()> {
        let readme = self.page()?;
        let tokio = between(&readme, "`cargo add tokio --features ", "`")?;
        let program = between(&readme, "```rust\n", "```")?;
        let directory = self.program("first-message", &[["tokio", tokio]])?;
        fs::write(directory.join("src/main.rs"), program)?;
        self.cargo(&directory).args(["build", "--quiet"]).run()?;
        says(
            timed(&self.target.join("debug/first-message")),
            "delivered after ",
        )
    }

    /// Copied into a program as they stand.
    fn examples(&self) -> Result<()> {
        let packages = [
            ["tokio", "macros,rt-multi-thread,test-util"],
            ["mio", "net,os-poll"],
            ["cloudburst-proto", ""],
        ];
        let directory = self.program("from-examples", &packages)?;
        let examples = self.unpack(LIBRARY, &self.home)?.join("examples");
        fs::rename(examples, directory.join("examples"))?;
        self.cargo(&directory)
            .args(["build", "--quiet", "--examples"])
            .run()?;
        for (name, said) in EXAMPLES {
            let program = self.target.join("debug/examples").join(name);
            says(timed(&program), said).with_context(|| format!("the example {name}"))?;
        }
        Ok(())
    }

    /// With the shared library and with the static one, by the commands of the package's README.
    fn c_programs(&self) -> Result<()> {
        let package = self.unpack(C_INTERFACE, &self.home)?;
        self.cargo(&package)
            .args(["build", "--quiet", "--release"])
            .run()?;
        let built = self.target.join("release");
        let link = [
            vec![
                format!("-L{}", built.display()),
                format!("-Wl,-rpath,{}", built.display()),
                "-lcloudburst_ffi".to_owned(),
            ],
            vec![built.join("libcloudburst_ffi.a").display().to_string()],
        ];
        for libraries in link {
            let program = self.home.join("request_reply");
            Run::new("cc")
                .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
                .arg(package.join("include"))
                .arg(package.join("examples/request_reply.c"))
                .args(libraries)
                .args(["-lpthread", "-ldl", "-lm", "-o"])
                .arg(&program)
                .run()?;
            says(timed(&program), "reply: are you there?")?;
        }
        Ok(())
    }

    /// Built from the archive, installed in a virtual environment that has nothing else.
    fn wheel(&self) -> Result<()> {
        let source = self.unpack(C_INTERFACE, &self.home)?.join("python");
        let environment = self.home.join("venv");
        Run::new("python3")
            .args(["-m", "venv"])
            .arg(&environment)
            .run()?;
        let python = environment.join("bin/python");
        let pip = || {
            Run::new(&python)
                .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
                .env("CARGO_TARGET_DIR", &self.target)
                .current_dir(&self.home)
        };
        let wheels = self.home.join("wheels");
        pip()
            .args(["wheel", "--no-deps", "--retries=0", "--wheel-dir"])
            .arg(&wheels)
            .arg(&source)
            .read()
            .map_err(unless_without_network)?;
        pip()
            .args(["install", "--no-index", "--find-links"])
            .arg(&wheels)
            .arg("cloudburst-fec")
            .read()?;
        let readme = fs::read_to_string(source.join("README.md"))?;
        let example = self.home.join("example.py");
        fs::write(&example, between(&readme, "```python\n", "```")?)?;
        says(timed(&python).arg(example), "b'ARE YOU THERE?'")?;
        let all = source.join("tests/try_out.py");
        says(timed(&python).arg(all), "all of it works")
    }
}

/// All packages of a workspace have this one's version.
fn versioned(package: &str) -> String {
    format!("{package}-{}", env!("CARGO_PKG_VERSION"))
}

/// Ends a program that does not end by itself.
fn timed(program: &Path) -> Run {
    Run::new("timeout").arg(SECONDS).arg(program)
}

/// Runs a program that has to succeed, and to say this.
fn says(program: Run, expected: &str) -> Result<()> {
    let command = program.to_string();
    let said = program.read()?;
    if !said.contains(expected) {
        bail!("`{command}` does not say `{expected}`, but: {said}");
    }
    Ok(())
}

fn between<'a>(page: &'a str, begin: &str, end: &str) -> Result<&'a str> {
    let inner = page
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end));
    let (inner, _) = inner.with_context(|| format!("the page has no {begin}"))?;
    Ok(inner)
}

/// Why pip fetched nothing that building a wheel takes. What comes after needs no network, and fails where it fails.
#[derive(Debug)]
struct NoNetwork;

impl fmt::Display for NoNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("there is no network")
    }
}

impl std::error::Error for NoNetwork {}

fn unless_without_network(error: anyhow::Error) -> anyhow::Error {
    if lacks_network(&format!("{error:#}")) {
        NoNetwork.into()
    } else {
        error
    }
}

/// Tells by the words of cargo and pip whether they have reached no registry.
fn lacks_network(said: &str) -> bool {
    [
        "Could not resolve host",
        "Couldn't connect to server",
        "failed to download from",
        "(from versions: none)",
        "ConnectionPool",
    ]
    .iter()
    .any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_missing_network_is_told_from_what_is_wrong() {
        assert!(lacks_network(
            "download of config.json failed: Could not resolve host: index.example"
        ));
        assert!(lacks_network(
            "No matching distribution (from versions: none)"
        ));
        assert!(!lacks_network(
            "error: no matching package named `cloudburst-wire` found"
        ));
        let told = |said: &str| unless_without_network(anyhow!("{said}")).is::<NoNetwork>();
        assert!(told("pip: ConnectionPool(host='pypi.org')"));
        assert!(!told("pip: the wheel's name is wrong"));
    }

    #[test]
    fn a_program_that_says_something_else_fails_with_what_it_says() {
        let hello = || Run::new("echo").arg("hello");
        assert!(says(hello(), "hell").is_ok());
        let error = says(hello(), "goodbye").unwrap_err().to_string();
        assert!(
            error.contains("goodbye") && error.contains("hello"),
            "{error}"
        );
    }
}
