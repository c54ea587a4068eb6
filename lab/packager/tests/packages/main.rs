//! Packages made from the programs of this build, looked at and installed by the tools that users have.

mod installed;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use flow_testbed::require::Requirement::Program;
use packager::{File, Kind, Release, contents};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DATE: u32 = 1_700_000_000;
const CONFIGURATION: &str = "etc/splitter/splitter.toml";

/// Everything that is made for one target, once for all tests.
static MADE: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("programs");
    fs::create_dir(&programs).unwrap();
    for program in ["splitter", "cloudburst", "netsim", "splitter-demo"] {
        let built = built(program);
        run(Command::new("strip")
            .arg("-o")
            .arg(programs.join(program))
            .arg(&built));
        // What a debugger reads is not what is tested here.
        fs::write(programs.join(format!("{program}.debug")), b"").unwrap();
    }
    let out = directory.path().join("out");
    release(&programs).write(&out).unwrap();
    (directory, out)
});

fn programs() -> PathBuf {
    MADE.0.path().join("programs")
}

fn release(programs: &Path) -> Release {
    Release {
        root: ROOT.into(),
        programs: programs.to_owned(),
        target: "x86_64-unknown-linux-musl".parse().unwrap(),
        runner: None,
        source_date: DATE,
        compression: 1,
        // Tests of Cloudburst's ciphers enable it in one that random numbers are made by.
        named_by_tests: &["zeroize"],
    }
}

/// A program of this build, which lies next to the directory of this test's; it is built if it is not there.
fn built(program: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let directory = test.parent().and_then(Path::parent).unwrap();
    let path = directory.join(program);
    if !path.exists() {
        let packages = contents::BUILT_TOGETHER.map(|name| format!("--package={name}"));
        let mut cargo = Command::new(env!("CARGO"));
        run(cargo
            .args(["build", "--locked", "--bins"])
            .args(packages)
            .current_dir(ROOT));
    }
    path
}

/// The file that ends so, of all that was made.
fn made(name: &str) -> PathBuf {
    let path = MADE.1.join(name);
    assert!(path.is_file(), "{} was not made", path.display());
    path
}

fn deb() -> PathBuf {
    made("splitter_0.1.0-1_amd64.deb")
}

fn rpm() -> PathBuf {
    made("splitter-0.1.0-1.x86_64.rpm")
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", all(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn all(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn equal_programs_make_equal_packages_in_any_directory() {
    let elsewhere = tempfile::tempdir().unwrap();
    let programs_there = elsewhere.path().join("a/longer/path");
    fs::create_dir_all(&programs_there).unwrap();
    for entry in fs::read_dir(programs()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), programs_there.join(entry.file_name())).unwrap();
    }
    let out = elsewhere.path().join("out");
    let files = release(&programs_there).write(&out).unwrap();
    assert!(files.len() >= 12, "{files:?}");
    for (file, _) in files {
        let name = file.file_name().unwrap();
        let is_equal = fs::read(&file).unwrap() == fs::read(MADE.1.join(name)).unwrap();
        assert!(is_equal, "{} differs", name.display());
    }
}

#[test]
fn container_tools_take_the_images() {
    flow_testbed::require!(Program("skopeo"));
    for (name, command) in [("splitter", "run"), ("cloudburst-tools", "")] {
        let image = made(&format!("{name}-0.1.0-x86_64-unknown-linux-musl.oci.tar"));
        let directory = tempfile::tempdir().unwrap();
        let skopeo = |arguments: &[&str]| {
            let policy = [
                "--insecure-policy",
                "--tmpdir",
                directory.path().to_str().unwrap(),
            ];
            run(Command::new("skopeo").args(policy).args(arguments))
        };
        let source = format!("oci-archive:{}", image.display());
        let inspect = |what| skopeo(&["inspect", "--config", "--format", what, &source]);
        assert_eq!(inspect("{{.Architecture}}/{{.OS}}").trim(), "amd64/linux");
        assert_eq!(inspect("{{range .Config.Cmd}}{{.}}{{end}}").trim(), command);
        // It compares all digests and sizes on the way.
        let unpacked = directory.path().join("image");
        skopeo(&["copy", &source, &format!("dir:{}", unpacked.display())]);
        let layers = fs::read_dir(&unpacked)
            .unwrap()
            .flatten()
            .map(|it| it.path());
        let layer = layers.max_by_key(|path| fs::metadata(path).unwrap().len());
        let list = run(Command::new("tar").arg("tzf").arg(layer.unwrap()));
        let program = name.trim_end_matches("-tools");
        for path in [
            format!("usr/bin/{program}"),
            format!("usr/share/licenses/{name}/LICENSE-MIT"),
        ] {
            assert!(
                list.lines().any(|line| line == path),
                "{path} is not in {list}"
            );
        }
        assert!(
            !list.contains("/man1/") && !list.contains("systemd"),
            "{list}"
        );
        let has_configuration = list.contains(CONFIGURATION);
        assert_eq!(has_configuration, name == "splitter");
    }
}

#[test]
fn packages_have_what_users_look_for() {
    let packages = contents::packages(&release(&programs())).unwrap();
    let paths: Vec<&str> = packages
        .iter()
        .flat_map(|package| &package.files)
        .map(|file| file.path.as_str())
        .collect();
    for path in [
        "/usr/bin/splitter",
        "/usr/bin/cloudburst",
        "/usr/bin/netsim",
        "/usr/bin/splitter-demo",
        "/usr/lib/systemd/system/splitter.service",
        "/usr/lib/systemd/system/splitter-fabric.service",
        "/usr/share/man/man1/splitter.1.gz",
        "/usr/share/man/man1/splitter-verify.1.gz",
        "/usr/share/man/man1/cloudburst-serve.1.gz",
        "/usr/share/bash-completion/completions/cloudburst",
        "/usr/share/zsh/vendor-completions/_splitter",
        "/usr/share/fish/vendor_completions.d/splitter.fish",
        "/usr/share/splitter/prometheus/splitter.rules.yml",
        "/usr/share/splitter/grafana/splitter.json",
        "/usr/share/cloudburst/grafana/cloudburst.json",
        "/usr/share/cloudburst/prometheus/cloudburst.rules.yml",
        "/usr/share/licenses/splitter/LICENSE-MIT",
    ] {
        assert!(paths.contains(&path), "{path} is not in {paths:#?}");
    }
    let configured = packages.iter().flat_map(|package| &package.files);
    let configured: Vec<_> = configured.filter(|it| it.kind == Kind::Config).collect();
    assert_eq!(configured.len(), 1);
    assert!(configured[0].path.ends_with(CONFIGURATION));
}

/// What is said of programs for being linked as the programs of this build are, or statically, or
/// of packages for not being signed: that is for whoever publishes them.
const OF_LINKING: [&str; 4] = [
    "undeclared-elf-prerequisites",
    "missing-dependency-on-libc",
    "statically-linked-binary",
    "no-signature",
];

/// Lines of what a program says about packages that begin so, or have that inside.
fn complaints(linter: &mut Command, marks: &[&str]) -> Vec<String> {
    let output = linter.output().unwrap();
    let text = all(&output);
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.retain(|line| marks.iter().any(|mark| line.contains(mark)));
    lines.retain(|line| !OF_LINKING.iter().any(|tag| line.contains(tag)));
    lines
}

#[test]
fn lintian_finds_neither_errors_nor_warnings() {
    flow_testbed::require!(Program("lintian"));
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--tag-display-limit=0"]);
    lintian.args([deb(), made("cloudburst-tools_0.1.0-1_amd64.deb")]);
    assert_eq!(complaints(&mut lintian, &["E: ", "W: "]), [""; 0]);
}

#[test]
fn rpmlint_finds_no_errors() {
    flow_testbed::require!(Program("rpmlint"));
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.args([rpm(), made("cloudburst-tools-0.1.0-1.x86_64.rpm")]);
    assert_eq!(complaints(&mut rpmlint, &[": E: "]), [""; 0]);
}

#[test]
fn linters_see_what_is_wrong() {
    flow_testbed::require!(Program("lintian"));
    let mut package = contents::packages(&release(&programs())).unwrap().remove(1);
    let odd = File::new("/usr/local/bin/odd", "#!/bin/sh\n");
    package.files.push(odd);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd_0.1.0-1_amd64.deb");
    let bytes = packager::deb::write(&release(&programs()), &package).unwrap();
    fs::write(&file, bytes).unwrap();
    let mut lintian = Command::new("lintian");
    let found = complaints(lintian.arg("--allow-root").arg(&file), &["E: ", "W: "]);
    assert!(
        found.iter().any(|line| line.contains("usr/local")),
        "{found:#?}"
    );
}

#[test]
fn scripts_of_the_rpm_are_for_the_shell() {
    flow_testbed::require!(Program("rpm"));
    let scripts = run(Command::new("rpm")
        .args(["--query", "--scripts", "--package"])
        .arg(rpm()));
    let (_, post) = scripts.split_once("postinstall scriptlet").unwrap();
    assert!(post.contains("systemd-sysusers splitter.conf"), "{scripts}");
    let body: String = scripts
        .lines()
        .filter(|line| !line.contains("scriptlet"))
        .map(|line| format!("{line}\n"))
        .collect();
    run(Command::new("sh").args(["-n", "-c", &body]));
}

/// What differs is what the one splits by and the other has a role by.
#[test]
fn role_in_a_fabric_is_as_closed_as_the_splitter_and_off() {
    let unit = |name: &str| {
        let path = Path::new(ROOT).join("packaging/systemd").join(name);
        fs::read_to_string(path).unwrap()
    };
    let closing = |text: &str| -> Vec<String> {
        const OWN: [&str; 14] = [
            "Description",
            "DefaultDependencies",
            "After",
            "Wants",
            "Before",
            "Conflicts",
            "TimeoutStartSec",
            "TimeoutStartFailureMode",
            "ConditionPathExists",
            "ExecCondition",
            "ExecStart",
            "ExecReload",
            "RuntimeDirectory",
            "BindPaths",
        ];
        let settings = text.lines().filter_map(|it| it.split_once('='));
        settings
            .filter(|(key, _)| !key.starts_with('#') && !OWN.contains(key))
            .map(|(key, value)| format!("{key}={value}"))
            .collect()
    };
    let [splitter, fabric] = ["splitter.service", "splitter-fabric.service"].map(unit);
    assert!(closing(&splitter).len() > 30);
    assert_eq!(closing(&fabric), closing(&splitter));
    assert!(fabric.contains("\nConditionPathExists=/etc/splitter/fabric.toml\n"));
    // A leaf's programs are at its ports before anything brings these up, and nothing waits for it in a circle.
    assert!(fabric.contains("\nBefore=network-pre.target shutdown.target\n"));
    assert!(fabric.contains("\nWants=network-pre.target\n"));
    assert!(fabric.contains("\nDefaultDependencies=no\n"));
    // Nothing installs that file, enables the unit, or starts it.
    let packages = contents::packages(&release(&programs())).unwrap();
    let files = packages.iter().flat_map(|it| &it.files);
    let mut paths = files.map(|it| it.path.as_str());
    assert!(!paths.any(|it| it.ends_with("/fabric.toml") || it.contains(".wants/")));
    for script in ["deb.rs", "rpm.rs"] {
        let text = fs::read_to_string(Path::new(ROOT).join("lab/packager/src").join(script));
        let text = text.unwrap();
        assert!(text.contains("stop splitter") || text.contains("disable --now splitter"));
        for verb in [" enable ", " start "] {
            assert!(!text.contains(verb), "{script}: {verb}");
        }
        assert!(text.contains("splitter fabric down --all"), "{script}");
        assert!(
            text.contains("try-restart splitter.service splitter-fabric.service"),
            "{script}"
        );
    }
}

#[test]
fn service_is_skipped_until_somebody_says_where_the_site_is() {
    let service = fs::read_to_string(Path::new(ROOT).join("packaging/systemd/splitter.service"));
    let service = service.unwrap();
    let condition = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecCondition="))
        .expect("the unit has a condition");
    let text = fs::read_to_string(Path::new(ROOT).join("packaging/splitter.toml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("splitter.toml");
    let is_started = |text: &str| {
        fs::write(&file, text).unwrap();
        let line = condition.replace("/etc/splitter/splitter.toml", &file.display().to_string());
        Command::new("sh")
            .arg("-c")
            .arg(line)
            .status()
            .unwrap()
            .success()
    };
    assert!(!is_started(&text), "as it is installed");
    let configured: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.starts_with(|it: char| it.is_ascii_lowercase() || it == '[') => key,
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(is_started(&configured), "with the comments off");
    run(Command::new(built("splitter")).arg("check").arg(&file));
}

#[test]
fn bill_of_materials_is_held_against_the_program() {
    let bill = fs::read(made("splitter-0.1.0-x86_64-unknown-linux-musl.cdx.json")).unwrap();
    let bill = String::from_utf8(bill).unwrap();
    for part in [
        "pkg:cargo/aya@",
        "pkg:cargo/tokio@",
        "pkg:cargo/splitter-policy@",
    ] {
        assert!(bill.contains(part), "{part}");
    }
    assert!(
        !bill.contains("flow-testbed"),
        "what only tests use is no part of it"
    );
    let packages = contents::packages(&release(&programs())).unwrap();
    let without = bill.replace("\"name\": \"aya\"", "\"name\": \"other\"");
    let without = without.parse().unwrap();
    let error = packager::sbom::check(&release(&programs()), &packages[0], &without).unwrap_err();
    assert!(error.to_string().contains("lacks aya-"), "{error}");
}

#[test]
fn sums_are_those_of_the_files() {
    flow_testbed::require!(Program("sha256sum"));
    let mut sums = Command::new("sha256sum");
    sums.args([
        "--check",
        "--strict",
        "SHA256SUMS-x86_64-unknown-linux-musl",
    ]);
    let checked = run(sums.current_dir(&MADE.1));
    assert_eq!(checked.matches(": OK").count(), 18, "{checked}");
}

#[test]
fn binstall_finds_each_program_in_its_tarball() {
    for (manifest, program) in [
        ("splitter-agent", "splitter"),
        ("cloudburst/crates/cli", "cloudburst"),
        ("netsim", "netsim"),
    ] {
        let path = Path::new(ROOT).join(manifest).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        let binstall = &manifest["package"]["metadata"]["binstall"];
        let filled = |key: &str| {
            let text = binstall[key].as_str().unwrap();
            let text = text.replace("{ version }", env!("CARGO_PKG_VERSION"));
            text.replace("{ target }", "x86_64-unknown-linux-musl")
                .replace("{ bin }", program)
        };
        let url = filled("pkg-url");
        let (release, name) = url.rsplit_once('/').unwrap();
        let tag = concat!("/releases/download/v", env!("CARGO_PKG_VERSION"));
        assert_eq!(release, format!("{{ repo }}{tag}"));
        let listed = run(Command::new("tar").arg("-tzf").arg(made(name)));
        let inside = filled("bin-dir");
        assert!(listed.lines().any(|it| it == inside), "{inside}: {listed}");
    }
}
