//! Kernels to try, from the distribution's packages: whatever their newest versions are called
//! today, kept in the target directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{command::Run, setup};

/// The oldest kernel that the splitter supports, which has no TCX, and the newest that Debian 12
/// has. Both are Debian's for virtual machines.
pub(super) const SERIES: [&str; 2] = ["6.1", "6.12"];

/// In the order in which they need each other; what a kernel has built in is no file. Those from
/// `llc` on are for VLANs.
const MODULES: [&str; 11] = [
    "veth",
    "sch_htb",
    "sch_ingress",
    "cls_bpf",
    "sch_fq_codel",
    "vrf",
    "llc",
    "stp",
    "mrp",
    "garp",
    "8021q",
];

/// Lists the modules that were asked for when a package was unpacked.
const ASKED: &str = "asked";

/// A kernel and the modules that it needs, unpacked.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) series: &'static str,
    /// What `uname -r` says on it.
    pub(super) release: String,
    directory: PathBuf,
}

impl Kernel {
    pub(super) fn image(&self) -> PathBuf {
        self.directory.join(format!("vmlinuz-{}", self.release))
    }

    pub(super) fn modules(&self) -> impl Iterator<Item = PathBuf> {
        let path = |name| self.directory.join(format!("{name}.ko"));
        MODULES.into_iter().map(path).filter(|path| path.exists())
    }
}

/// The newest kernel of a series, from `directory` if it is there already. One that was fetched
/// earlier will do when there is no newer one to be had.
pub(super) fn fetch(directory: &Path, series: &'static str) -> Result<Kernel> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let fetched = fetch_newest(directory, series);
    let kept = newest(series, packages_in(directory)?.iter().map(String::as_str));
    let package = match (fetched, kept) {
        (Ok(package), _) => package,
        (Err(error), Some(kept)) => {
            eprintln!("warning: {error:#}; using {kept}, which was fetched earlier");
            kept
        }
        (Err(error), None) => return Err(error),
    };
    for old in packages_in(directory)? {
        if old != package && version(series, &old).is_some() {
            // What stays is in nobody's way.
            let _ = fs::remove_dir_all(directory.join(old));
        }
    }
    Ok(Kernel {
        series,
        release: package.trim_start_matches(PREFIX).to_owned(),
        directory: directory.join(package),
    })
}

fn fetch_newest(directory: &Path, series: &str) -> Result<String> {
    let find = || -> Result<Option<String>> {
        let pattern = format!("^{PREFIX}{}\\.", series.replace('.', "\\."));
        let found = Run::new("apt-cache")
            .args(["search", "--names-only", &pattern])
            .read()?;
        let names = found.lines().filter_map(|line| line.split(' ').next());
        Ok(newest(series, names))
    };
    let mut is_fresh = false;
    let package = match find()? {
        Some(package) => package,
        None => {
            is_fresh = setup::refresh_package_lists().is_ok();
            find()?.with_context(|| {
                format!("no package source of this system has {PREFIX}{series}.*{SUFFIX}")
            })?
        }
    };
    if is_complete(&directory.join(&package)) {
        return Ok(package);
    }
    match download(directory, &package) {
        // The mirror may have replaced what old lists name.
        Err(_) if !is_fresh && setup::refresh_package_lists().is_ok() => {
            let package = find()?.unwrap_or(package);
            download(directory, &package)?;
            Ok(package)
        }
        downloaded => downloaded.map(|()| package),
    }
}

/// Downloads and unpacks; apt compares the package with its signed list.
fn download(directory: &Path, package: &str) -> Result<()> {
    eprintln!("Fetching {package}");
    let unfinished = directory.join(format!("unfinished-{}", std::process::id()));
    fs::create_dir(&unfinished)
        .with_context(|| format!("cannot make the directory {}", unfinished.display()))?;
    let done = unpack(&unfinished, package).and_then(|()| {
        let kept = directory.join(package);
        // One with fewer modules, from an earlier version of this program.
        let _ = fs::remove_dir_all(&kept);
        fs::rename(&unfinished, kept).context("cannot keep the kernel")
    });
    if done.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    done
}

fn unpack(directory: &Path, package: &str) -> Result<()> {
    Run::new("apt-get")
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", package])
        .current_dir(directory)
        .run()?;
    Run::new("sh")
        .args(["-c", UNPACK, "unpack"])
        .args(MODULES.map(|name| format!("{name}.ko*")))
        .current_dir(directory)
        .run()?;
    let image = package.replace(PREFIX, "vmlinuz-");
    if !directory.join(&image).exists() {
        bail!("the package {package} has no {image}");
    }
    fs::write(directory.join(ASKED), MODULES.join("\n")).context("cannot list the modules")
}

/// Whether a package was unpacked with all modules that are needed today.
fn is_complete(package: &Path) -> bool {
    fs::read_to_string(package.join(ASKED)).is_ok_and(|asked| asked == MODULES.join("\n"))
}

/// Keeps of a package the kernel and the modules that the arguments match, without directories.
const UNPACK: &str = r#"
set -e
dpkg-deb --fsys-tarfile ./*.deb |
    tar -x --wildcards --no-anchored --transform='s,.*/,,' 'vmlinuz-*' "$@" 2>/dev/null || true
rm ./*.deb
for module in ./*.ko.xz; do
    [ ! -e "$module" ] || xz -d "$module"
done
"#;

/// Packages that were unpacked into the directory.
fn packages_in(directory: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

fn newest<'a>(series: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let newest = names
        .filter_map(|name| Some((version(series, name)?, name)))
        .max();
    newest.map(|(_, name)| name.to_owned())
}

/// The numbers in a package's name if it is a kernel of that series; not one without its
/// signature, nor what only points to the newest.
fn version(series: &str, package: &str) -> Option<Vec<u32>> {
    let release = package.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let rest = release.strip_prefix(series)?.strip_prefix('.')?;
    let numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(numbers.filter_map(|number| number.parse().ok()).collect())
}

const PREFIX: &str = "linux-image-";
const SUFFIX: &str = "-cloud-amd64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_of_a_series_is_chosen() {
        let names = [
            "linux-image-cloud-amd64",
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.1.0-58-cloud-amd64-dbg",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.12.113+deb12-cloud-amd64",
            "linux-image-6.12.95+deb12-cloud-amd64",
            "linux-image-6.1.0-60-amd64",
        ];
        let chosen = |series| newest(series, names.into_iter());
        assert_eq!(
            chosen("6.1").as_deref(),
            Some("linux-image-6.1.0-56-cloud-amd64")
        );
        assert_eq!(
            chosen("6.12").as_deref(),
            Some("linux-image-6.12.113+deb12-cloud-amd64")
        );
        assert_eq!(chosen("6.16"), None);
    }

    #[test]
    fn the_script_is_shell() {
        assert!(Run::new("sh").args(["-n", "-c", UNPACK]).succeeds());
    }
}
