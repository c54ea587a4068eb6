//! Contents of each package, in one list for all formats.

use anyhow::{Context, Result};

use crate::{File, Kind, Release, file::gzip, pages, tarball};

/// A package, whatever its format.
#[derive(Clone, Debug)]
pub struct Package {
    /// The package's name.
    pub name: &'static str,
    /// The cargo package that its program is built from.
    pub cargo_package: &'static str,
    /// The program's name.
    pub program: &'static str,
    /// The version, as in the workspace's `Cargo.toml`.
    pub version: String,
    /// A line about it.
    pub summary: &'static str,
    /// A paragraph about it, in lines.
    pub description: &'static [&'static str],
    /// Whether there is a deb and an rpm of it, and not just a tarball.
    pub has_packages: bool,
    /// Whether it brings a service along, with its user.
    pub has_service: bool,
    /// Whether the program carries programs for the kernel, which have crates of their own.
    pub has_kernel_programs: bool,
    /// All that it installs.
    pub files: Vec<File>,
    /// Line tables and symbols, which are kept apart.
    pub debug: Vec<File>,
}

/// The cargo packages of all programs, which one call of cargo builds.
pub const BUILT_TOGETHER: [&str; 4] = [
    "splitter-agent",
    "cloudburst-cli",
    "flow-netsim",
    "splitter-demo",
];

/// All packages of a release.
///
/// # Errors
/// When a program or a file of the source tree is missing, or a program does not run.
pub fn packages(release: &Release) -> Result<Vec<Package>> {
    Ok(vec![
        splitter(release)?,
        cloudburst(release)?,
        netsim(release)?,
        demo(release)?,
    ])
}

/// Where units name the program in the source tree, whose files are copied by hand.
const PLACE_IN_UNITS: &str = "/usr/local/bin/splitter";

fn splitter(release: &Release) -> Result<Package> {
    let mut package = Package {
        has_service: true,
        has_kernel_programs: true,
        summary: "Gives short TCP flows a WAN tunnel of their own",
        description: &[
            "An XDP program at a border router counts each flow's packets and marks it",
            "short or long; rules and routes send each class over its own tunnel, so",
            "that a click does not queue behind a download. Applications stay as they",
            "are, and TLS stays closed.",
        ],
        ..common(release, "splitter", "splitter-agent", "splitter")?
    };
    let unit = |path: &str| -> Result<String> {
        let unit = String::from_utf8(release.source(path)?).context("a unit is not UTF-8")?;
        Ok(unit.replace(PLACE_IN_UNITS, "/usr/bin/splitter"))
    };
    let copied = [
        (
            "packaging/systemd/sysusers.conf",
            "/usr/lib/sysusers.d/splitter.conf",
        ),
        (
            "packaging/systemd/tmpfiles.conf",
            "/usr/lib/tmpfiles.d/splitter.conf",
        ),
        (
            "packaging/prometheus/splitter.rules.yml",
            "/usr/share/splitter/prometheus/splitter.rules.yml",
        ),
        (
            "packaging/prometheus/prometheus.yml",
            "/usr/share/splitter/prometheus/prometheus.yml",
        ),
        (
            "packaging/grafana/splitter.json",
            "/usr/share/splitter/grafana/splitter.json",
        ),
    ];
    let files = &mut package.files;
    for (from, to) in copied {
        files.push(File::new(to, release.source(from)?));
    }
    let configuration = release.source("packaging/splitter.toml")?;
    files.push(File::new("/etc/splitter/splitter.toml", configuration).with_kind(Kind::Config));
    for service in ["splitter.service", "splitter-fabric.service"] {
        files.push(File::new(
            format!("/usr/lib/systemd/system/{service}"),
            unit(&format!("packaging/systemd/{service}"))?,
        ));
    }
    let examples = "/usr/share/doc/splitter/examples";
    files.push(File::new(
        format!("{examples}/splitter-root.service"),
        unit("packaging/systemd/splitter-root.service")?,
    ));
    let print = |what| pages::printed(release, "splitter", &["config", what]);
    files.push(File::new(
        format!("{examples}/splitter.example.toml"),
        print("example")?,
    ));
    files.push(File::new(
        "/usr/share/splitter/splitter.schema.json",
        print("schema")?,
    ));
    add_pages(release, &mut package)?;
    Ok(package)
}

fn cloudburst(release: &Release) -> Result<Package> {
    let mut package = Package {
        summary: "Sends messages that must not wait, coded over several paths",
        description: &[
            "Short messages go as coded packets over several UDP paths at once, until",
            "the receiver says stop: a lost packet, a slow path or a dead one costs no",
            "retransmission timeout. This is the command; programs use the library.",
        ],
        ..common(release, "cloudburst-tools", "cloudburst-cli", "cloudburst")?
    };
    let copied = [
        (
            "packaging/prometheus/",
            "prometheus/",
            "cloudburst.rules.yml",
        ),
        ("packaging/grafana/", "grafana/", "cloudburst.json"),
    ];
    for (from, to, file) in copied {
        let content = release.source(&format!("{from}{file}"))?;
        let path = format!("/usr/share/cloudburst/{to}{file}");
        package.files.push(File::new(path, content));
    }
    add_pages(release, &mut package)?;
    Ok(package)
}

fn netsim(release: &Release) -> Result<Package> {
    Ok(Package {
        summary: "Simulates leaf-spine fabrics packet by packet",
        has_packages: false,
        ..common(release, "netsim", "flow-netsim", "netsim")?
    })
}

/// The demonstration and the playground, apart from what runs on a border.
fn demo(release: &Release) -> Result<Package> {
    Ok(Package {
        summary: "Measures on one machine what splitting buys, or keeps two borders running",
        has_packages: false,
        ..common(release, "splitter-demo", "splitter-demo", "splitter-demo")?
    })
}

/// A package with a program, its line tables, licences and the changelog.
fn common(
    release: &Release,
    name: &'static str,
    cargo_package: &'static str,
    program: &'static str,
) -> Result<Package> {
    let built = |name: String| -> Result<Vec<u8>> {
        let path = release.programs.join(name);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let doc = format!("/usr/share/doc/{name}");
    let changelog = gzip(&release.source("CHANGELOG.md")?, 9)?;
    let mut files = vec![
        File::program(format!("/usr/bin/{program}"), built(program.to_owned())?),
        File::new(format!("{doc}/changelog.gz"), changelog),
    ];
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let path = format!("/usr/share/licenses/{name}/{licence}");
        files.push(File::new(path, release.source(licence)?).with_kind(Kind::Licence));
    }
    let debug = format!("{program}.debug");
    Ok(Package {
        name,
        cargo_package,
        program,
        version: version(release)?,
        summary: "",
        description: &[],
        has_packages: true,
        has_service: false,
        has_kernel_programs: false,
        files,
        debug: vec![File::new(
            format!("/usr/lib/debug{}/{debug}", tarball::PROGRAMS),
            built(debug)?,
        )],
    })
}

fn add_pages(release: &Release, package: &mut Package) -> Result<()> {
    let pages = pages::manual_pages(release, package.program)?;
    package.files.extend(pages);
    let completions = pages::completions(release, package.program)?;
    package.files.extend(completions);
    Ok(())
}

fn version(release: &Release) -> Result<String> {
    let manifest = String::from_utf8(release.source("Cargo.toml")?)?;
    let manifest: toml::Table = manifest.parse().context("cannot read Cargo.toml")?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("the workspace has no version")?.to_owned())
}
