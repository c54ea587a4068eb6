//! Installs packages with apt, without starting what they bring.

use std::{
    collections::VecDeque,
    fs,
    io::IsTerminal,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::needs::{Kind, Need, SERVICES};
use crate::{
    command::Run,
    project::{find_program, is_root},
};

/// apt, and whether its package lists are known to be fresh.
#[derive(Debug)]
pub(super) struct Apt {
    updated: bool,
}

/// How a command gets the right to change the system.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elevation {
    /// This is root.
    None,
    Sudo,
}

/// How to get root's rights here, or what the user should do for want of them.
pub(super) fn elevation() -> Result<Elevation, String> {
    if is_root() {
        return Ok(Elevation::None);
    }
    let can_ask = std::io::stdin().is_terminal();
    let has_sudo = find_program("sudo").is_some();
    if has_sudo && (can_ask || Run::new("sudo").args(["-n", "true"]).succeeds()) {
        return Ok(Elevation::Sudo);
    }
    Err(
        "installing packages needs root, and sudo is not to be had without a password here. \
         Run `cargo xtask setup` as root or from a terminal."
            .to_owned(),
    )
}

pub(super) fn is_installed(package: &str) -> bool {
    Run::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .read()
        .is_ok_and(|status| status == "installed")
}

impl Apt {
    pub(super) fn new() -> Self {
        Self { updated: false }
    }

    /// Whether some package source has it.
    pub(super) fn has_candidate(&self, package: &str) -> bool {
        Run::new("apt-cache")
            .args(["policy", package])
            .env("LC_ALL", "C")
            .read()
            .is_ok_and(|policy| has_candidate(&policy))
    }

    /// Whether there are no package lists, they are old, or they lack something
    /// that is needed.
    pub(super) fn would_refresh(&self, needed: &[&Need]) -> bool {
        let lacks = |need: &&Need| match need.kind {
            Kind::Program { packages, .. } => !packages.iter().any(|p| self.has_candidate(p)),
            Kind::Package(package) | Kind::PythonModule { package, .. } => {
                !self.has_candidate(package)
            }
            _ => false,
        };
        let wants_packages = needed.iter().any(|need| {
            matches!(
                need.kind,
                Kind::Program { .. } | Kind::Package(_) | Kind::PythonModule { .. }
            )
        });
        wants_packages && (lists_are_stale() || needed.iter().any(lacks))
    }

    /// Fetches the package lists [when that helps](Self::would_refresh).
    pub(super) fn refresh_if_needed(&mut self, needed: &[&Need]) -> Result<()> {
        if self.would_refresh(needed) {
            // Without root the lists stay as they are; installing says why.
            if let Ok(elevation) = elevation() {
                self.update(elevation)?;
            }
        }
        Ok(())
    }

    /// Installs `packages`; tries again with fresh lists when the old ones name
    /// files that the mirror no longer has.
    pub(super) fn install(&mut self, packages: &[String], elevation: Elevation) -> Result<()> {
        let install = || run_script(INSTALL, packages, elevation, "Installing");
        match install() {
            Err(_) if !self.updated => {
                self.update(elevation)?;
                install()
            }
            result => result,
        }
    }

    pub(super) fn update(&mut self, elevation: Elevation) -> Result<()> {
        self.updated = true;
        run_script(UPDATE, &[], elevation, "Fetching package lists")
    }
}

/// Runs a shell script with the right to change the system, and shows apt's
/// progress as a bar; on failure the last lines that it printed.
fn run_script(
    script: &str,
    arguments: &[String],
    elevation: Elevation,
    title: &'static str,
) -> Result<()> {
    let shell = match elevation {
        Elevation::None => Run::new("sh"),
        Elevation::Sudo => Run::new("sudo").arg("sh"),
    };
    let services = SERVICES.join(" ");
    let mut shell = shell
        .args(["-c", script, "setup", &services])
        .args(arguments);
    let bar = progress_bar(title);
    let mut last_lines = VecDeque::new();
    let status = shell.stream(|line| match progress(line) {
        Some((percent, message)) => {
            bar.set_position(percent);
            bar.set_message(message.to_owned());
        }
        None => {
            last_lines.push_back(line.to_owned());
            if last_lines.len() > KEPT_LINES {
                last_lines.pop_front();
            }
        }
    })?;
    bar.finish_and_clear();
    if !status.success() {
        let output: Vec<_> = last_lines.into();
        bail!("{title} failed with {status}:\n{}", output.join("\n"));
    }
    Ok(())
}

fn progress_bar(title: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        eprintln!("{title} ...");
    }
    let bar = ProgressBar::new(100).with_prefix(title);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {wide_msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Reads a line of APT::Status-Fd, `pmstatus:nginx:42.5:Unpacking nginx`.
/// Downloads are shown as the first half, installation as the second.
fn progress(line: &str) -> Option<(u64, &str)> {
    let mut fields = line.splitn(4, ':');
    let start = match fields.next()? {
        "dlstatus" => 0.0,
        "pmstatus" => 50.0,
        _ => return None,
    };
    let _package = fields.next()?;
    let percent: f64 = fields.next()?.parse().ok()?;
    let percent = start + percent.clamp(0.0, 100.0) / 2.0;
    // Within 0..=100 by the line above.
    Some((percent as u64, fields.next()?.trim()))
}

fn has_candidate(policy: &str) -> bool {
    policy
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Candidate: "))
        .any(|version| version != "(none)")
}

fn lists_are_stale() -> bool {
    let newest = fs::read_dir(Path::new("/var/lib/apt/lists"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("Packages"))
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .max();
    let directory = fs::metadata("/var/lib/apt/lists/partial").and_then(|m| m.modified());
    // apt keeps the server's date on the files; the directory has the date of
    // the last update.
    match newest.max(newest.and(directory.ok())) {
        Some(newest) => SystemTime::now()
            .duration_since(newest)
            .is_ok_and(|age| age > LISTS_LIFETIME),
        None => true,
    }
}

const LISTS_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

const KEPT_LINES: usize = 30;

/// apt closes the descriptor for its status before it runs the scripts of packages: it must not be
/// their output, or the first that prints something fails (`frr` does).
const UPDATE: &str = "exec apt-get -q -o APT::Status-Fd=3 update 3>&1 2>&1";

/// Installs `$2` and on. The services in `$1` neither start now (policy-rc.d is
/// the interface that Debian has for that; one that is there already is asked
/// for all other services and restored) nor, when they are new here, at boot.
const INSTALL: &str = r#"
services=$1; shift
policy=/usr/sbin/policy-rc.d
saved=$policy.before-xtask
marker='# Made by cargo xtask setup; removed when it ends.'
restore() {
    if grep -qsF "$marker" "$policy"; then rm -f "$policy"; fi
    if [ -e "$saved" ]; then mv -f "$saved" "$policy"; fi
}
restore # in case that an earlier run was killed
new=
for service in $services; do
    command -v "$service" >/dev/null 2>&1 || [ -x "/usr/sbin/$service" ] || new="$new $service"
done
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
[ ! -e "$policy" ] || mv "$policy" "$saved"
cat > "$policy" <<EOF
#!/bin/sh
$marker
for service in $services; do
    case "\$1" in "\$service" | "\$service".*) exit 101 ;; esac
done
[ ! -x "$saved" ] || exec "$saved" "\$@"
exit 0
EOF
chmod 755 "$policy"
DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
    -o APT::Status-Fd=3 -o Dpkg::Use-Pty=0 -o Dpkg::Lock::Timeout=120 install "$@" 3>&1 2>&1 || exit
for service in $new; do
    if [ -e "/etc/init.d/$service" ] || [ -e "/lib/systemd/system/$service.service" ]; then
        update-rc.d "$service" disable >/dev/null 2>&1 || true
    fi
done
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn reads_candidates() {
        assert!(has_candidate(
            "nginx:\n  Installed: (none)\n  Candidate: 1.22.1-9\n"
        ));
        assert!(!has_candidate(
            "bpftool:\n  Installed: (none)\n  Candidate: (none)\n"
        ));
        assert!(!has_candidate(""));
    }

    #[test]
    fn reads_progress() {
        assert_eq!(
            progress("pmstatus:nginx:42.5:Unpacking nginx: 1 of 2"),
            Some((71, "Unpacking nginx: 1 of 2"))
        );
        assert_eq!(
            progress("dlstatus:1:100:Retrieving file"),
            Some((50, "Retrieving file"))
        );
        assert_eq!(progress("Setting up nginx (1.22.1-9) ..."), None);
        assert_eq!(progress("pmstatus:nginx:much:Unpacking"), None);
    }

    #[test]
    fn scripts_of_packages_can_print() {
        let directory = tempfile::tempdir().unwrap();
        let apt = directory.path().join("apt-get");
        // As apt does before it runs a package's script.
        let closes = r#"#!/bin/sh
fd=$(printf '%s\n' "$@" | sed -n 's/^APT::Status-Fd=//p')
echo status >&"$fd"
eval "exec $fd>&-"
echo script
"#;
        fs::write(&apt, closes).unwrap();
        fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("PATH={}:$PATH; ", directory.path().display());
        let script = path + UPDATE;
        let mut printed = Vec::new();
        let status = Run::new("sh")
            .args(["-c", &script])
            .stream(|line| printed.push(line.to_owned()));
        assert!(status.unwrap().success());
        assert_eq!(printed, ["status", "script"]);
    }

    #[test]
    fn the_scripts_are_shell() {
        for script in [UPDATE, INSTALL] {
            assert!(Run::new("sh").args(["-n", "-c", script]).succeeds());
        }
    }
}
