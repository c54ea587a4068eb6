//! Packages are installed, upgraded and removed: into directories, and on a Debian with a systemd that runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use flow_testbed::require::{
    self,
    Requirement::{CongestionControl, FileSystem, Program, Root},
};
use packager::{Kind, contents};
use tempfile::TempDir;

use super::{CONFIGURATION, ROOT, all, deb, programs, release, rpm, run};

/// What `bare-debian.sh` ends with where no Debian is to be had.
const NO_DEBIAN: i32 = 77;

/// A root that dpkg installs into without changing its own root, by the scripts' `DPKG_ROOT`.
struct DebianRoot(TempDir);

impl DebianRoot {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var/lib/dpkg/info")).unwrap();
        fs::write(root.path().join("var/lib/dpkg/status"), b"").unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        Self(root)
    }

    #[track_caller]
    fn dpkg(&self, arguments: &[&str], package: &Path) -> String {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.path("").display()));
        // It has no systemd to depend on.
        dpkg.args([
            "--force-script-chrootless",
            "--force-depends",
            "--force-confdef",
            "--force-confold",
        ]);
        run(dpkg.args(arguments).arg(package))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn configuration(&self) -> String {
        fs::read_to_string(self.path(CONFIGURATION)).unwrap_or_default()
    }
}

#[test]
fn deb_is_installed_upgraded_removed_and_purged() {
    flow_testbed::require!(Root, Program("dpkg"), Program("systemd-sysusers"));
    let root = DebianRoot::new();
    root.dpkg(&["--install"], &deb());
    let users = fs::read_to_string(root.path("etc/passwd")).unwrap();
    assert!(
        users.contains("splitter:"),
        "no user of the service in {users}"
    );
    run(Command::new(root.path("usr/bin/splitter")).arg("--version"));
    let status = root.path("usr/lib/systemd/system/splitter.service");
    assert!(
        fs::read_to_string(status)
            .unwrap()
            .contains("ExecStart=/usr/bin/splitter run\n")
    );

    let role = root.path("usr/lib/systemd/system/splitter-fabric.service");
    let role = fs::read_to_string(role).unwrap();
    assert!(role.contains("ExecStart=/usr/bin/splitter fabric run\n"));
    let wanted = root.path("etc/systemd/system/multi-user.target.wants");
    assert!(!wanted.exists(), "something is started at boot");

    let changed = root.configuration() + "lan = ['eth7']\n";
    fs::write(root.path(CONFIGURATION), &changed).unwrap();
    // The next version, whose configuration is another one.
    let mut next = contents::packages(&release(&programs())).unwrap().remove(0);
    next.version = "0.2.0".to_owned();
    for file in next.files.iter_mut().filter(|it| it.kind == Kind::Config) {
        file.content = b"# of the next version\n".to_vec();
    }
    let upgrade = root.path("next.deb");
    fs::write(
        &upgrade,
        packager::deb::write(&release(&programs()), &next).unwrap(),
    )
    .unwrap();
    root.dpkg(&["--install"], &upgrade);
    assert_eq!(
        root.configuration(),
        changed,
        "an upgrade takes nothing away"
    );
    let offered = fs::read_to_string(root.path("etc/splitter/splitter.toml.dpkg-dist"));
    assert_eq!(offered.unwrap(), "# of the next version\n");

    root.dpkg(&["--remove"], Path::new("splitter"));
    assert!(!root.path("usr/bin/splitter").exists());
    assert_eq!(
        root.configuration(),
        changed,
        "removal takes the programs only"
    );
    root.dpkg(&["--purge"], Path::new("splitter"));
    assert!(
        !root.path("etc/splitter").exists(),
        "purging leaves nothing"
    );
    assert!(!root.path("usr/share/doc/splitter").exists());
}

#[test]
fn rpm_is_installed_upgraded_and_erased() {
    flow_testbed::require!(Root, Program("rpm"));
    let root = tempfile::tempdir().unwrap();
    let path = |path: &str| root.path().join(path);
    let rpm_of = |arguments: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(root.path());
        // An empty root has neither systemd nor a shell for scripts.
        run(rpm.args(["--nodeps", "--noscripts"]).args(arguments))
    };
    let rpm_file = |file: &Path| file.display().to_string();
    rpm_of(&["--install", &rpm_file(&rpm())]);
    run(Command::new(path("usr/bin/splitter")).arg("--version"));
    assert!(path("usr/share/zsh/site-functions/_splitter").is_file());
    assert_eq!(rpm_of(&["--verify", "splitter"]), "");

    let changed = "lan = ['eth7']\n";
    fs::write(path(CONFIGURATION), changed).unwrap();
    let mut next = contents::packages(&release(&programs())).unwrap().remove(0);
    next.version = "0.2.0".to_owned();
    for file in next.files.iter_mut().filter(|it| it.kind == Kind::Config) {
        file.content = b"# of the next version\n".to_vec();
    }
    let upgrade = path("next.rpm");
    fs::write(
        &upgrade,
        packager::rpm::write(&release(&programs()), &next).unwrap(),
    )
    .unwrap();
    rpm_of(&["--upgrade", &rpm_file(&upgrade)]);
    assert_eq!(fs::read_to_string(path(CONFIGURATION)).unwrap(), changed);
    assert!(path("etc/splitter/splitter.toml.rpmnew").is_file());

    rpm_of(&["--erase", "splitter"]);
    assert!(!path("usr/bin/splitter").exists());
    assert_eq!(
        fs::read_to_string(path("etc/splitter/splitter.toml.rpmsave")).unwrap(),
        changed
    );
}

/// Runs a script that tries something on a bare Debian 13, and returns what it printed; `None`, and skipped, where
/// no Debian is to be had. The bare root stays for the next run.
fn on_bare_debian(script: &str, argument: &Path, test: &str) -> Option<String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let script = Path::new(ROOT).join("lab/packager").join(script);
    let mut command = Command::new("sh");
    command.args([script.as_os_str(), "trixie".as_ref(), argument.as_os_str()]);
    let output = command.current_dir(place).output().unwrap();
    if output.status.code() == Some(NO_DEBIAN) {
        let reason = "debootstrap can make no Debian; a mirror has to be in reach";
        require::skip(test, reason);
        return None;
    }
    assert!(output.status.success(), "{}", all(&output));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The unit's restrictions hold or break in a systemd alone: one that closed `/sys` kept it from its pins.
#[test]
fn service_of_a_bare_debian_splits_is_upgraded_beside_a_flow_and_purged() {
    flow_testbed::require!(Root, Program("debootstrap"), Program("systemd-nspawn"));
    fn here() {}
    let test = std::any::type_name_of_val(&here);
    let told = on_bare_debian("bare-debian.sh", &deb(), test);
    let tried = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-trixie-tried");
    let _ = fs::remove_dir_all(tried);
    let Some(told) = told else {
        return;
    };
    assert!(told.contains("ok: all 2 paths are as intended"), "{told}");
    assert!(told.contains("sent again by the host: 0\n"), "{told}");
}

/// No container engine is asked: what it would start is started, in a root with what it would install.
#[test]
fn playground_of_the_compose_file_runs_in_a_bare_debian_and_prometheus_finds_it() {
    flow_testbed::require!(Root, Program("debootstrap"), Program("systemd-nspawn"));
    flow_testbed::require!(Program("prometheus"), Program("curl"), FileSystem("bpf"));
    flow_testbed::require!(CongestionControl("cubic"));
    fn here() {}
    let test = std::any::type_name_of_val(&here);
    if let Some(told) = on_bare_debian("compose.sh", &programs(), test) {
        assert!(told.ends_with("ran and ended as a container\n"), "{told}");
    }
}
