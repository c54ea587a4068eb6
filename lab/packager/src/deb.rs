//! Packages for Debian and what comes from it: an `ar` archive of two tarballs (deb(5)).

use anyhow::Result;
use ar::{Builder, Header};
use md5::{Digest, Md5};

use crate::{File, Kind, Package, Release, file::gzip, tarball::Archive};

/// Which packaging of a version it is.
const REVISION: &str = "1";

/// Takes no mail: reports go where SECURITY.md and CONTRIBUTING.md say.
pub(crate) const MAINTAINER: &str =
    "The flow prioritisation developers <flow-prioritisation@users.noreply.github.com>";

/// The home of the project.
pub(crate) const HOMEPAGE: &str = "https://github.com/flow-prioritisation/toolkit";

/// The file name of a package.
pub fn name(release: &Release, package: &Package) -> String {
    let architecture = release.target.debian;
    let Package { name, version, .. } = package;
    format!("{name}_{version}-{REVISION}_{architecture}.deb")
}

/// All bytes of a package.
///
/// # Errors
/// When an archive does not take a path.
pub fn write(release: &Release, package: &Package) -> Result<Vec<u8>> {
    let mut files: Vec<File> = package.files.clone();
    // The licences are in the copyright file, as Debian has it.
    files.retain(|file| file.kind != Kind::Licence);
    files.extend(debian_files(release, package)?);
    let mut data = Archive::new(release);
    for file in &files {
        data.add(&format!(".{}", file.path), file.mode, &file.content)?;
    }
    let mut control = Archive::new(release);
    for (name, mode, content) in control_files(release, package, &files) {
        control.add(&format!("./{name}"), mode, content.as_bytes())?;
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.finish()?),
        ("data.tar.gz", data.finish()?),
    ];
    let mut deb = Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = Header::new(name.as_bytes().to_vec(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.source_date.into());
        deb.append(&header, content.as_slice())?;
    }
    Ok(deb.into_inner()?)
}

/// What Debian asks of each package's documentation.
fn debian_files(release: &Release, package: &Package) -> Result<Vec<File>> {
    let Package { name, version, .. } = package;
    let changelog = format!(
        "{name} ({version}-{REVISION}) unstable; urgency=medium\n\n  \
         * Packaged from the source tree; changelog.gz says what has changed.\n\n \
         -- {MAINTAINER}  {}\n",
        release.date("+%a, %d %b %Y %H:%M:%S +0000")?
    );
    let mit = String::from_utf8(release.source("LICENSE-MIT")?)?;
    let doc = format!("/usr/share/doc/{name}");
    let overrides = format!(
        "# One program for every Debian, and for what is not Debian: it has no library to follow.\n\
         {name}: statically-linked-binary [usr/bin/{program}]\n\
         {name}: shared-library-lacks-prerequisites [usr/bin/{program}]\n\
         # There is no bug of Debian's that this closes.\n\
         {name}: initial-upload-closes-no-bugs *\n",
        program = package.program
    );
    Ok(vec![
        File::new(
            format!("{doc}/changelog.Debian.gz"),
            gzip(changelog.as_bytes(), 9)?,
        ),
        File::new(format!("{doc}/copyright"), copyright(&mit)),
        File::new(format!("/usr/share/lintian/overrides/{name}"), overrides),
    ])
}

fn copyright(mit: &str) -> String {
    // The text of a licence is indented, with a dot for an empty line (DEP 5).
    let indented: String = mit
        .lines()
        .skip_while(|line| line.starts_with("MIT") || line.is_empty())
        .map(|line| match line.trim_end() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        })
        .collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Source: {HOMEPAGE}\n\n\
         Files: *\n\
         Copyright: The flow prioritisation developers\n\
         License: Expat or Apache-2.0\n\n\
         License: Expat\n{indented}\n\
         License: Apache-2.0\n \
         On Debian systems, the text of the Apache licence, version 2.0, is in\n \
         /usr/share/common-licenses/Apache-2.0.\n"
    )
}

fn control_files(
    release: &Release,
    package: &Package,
    files: &[File],
) -> Vec<(&'static str, u32, String)> {
    let sums = files.iter().map(|file| {
        let path = file.path.trim_start_matches('/');
        format!("{:x}  {path}\n", Md5::digest(&file.content))
    });
    let configuration = files.iter().filter(|file| file.kind == Kind::Config);
    let configuration: String = configuration
        .map(|file| format!("{}\n", file.path))
        .collect();
    let mut control = vec![
        ("control", 0o644, control(release, package, files)),
        ("md5sums", 0o644, sums.collect()),
    ];
    if !configuration.is_empty() {
        control.push(("conffiles", 0o644, configuration));
    }
    if package.has_service {
        control.push(("postinst", 0o755, POST_INSTALL.to_owned()));
        control.push(("prerm", 0o755, PRE_REMOVE.to_owned()));
        control.push(("postrm", 0o755, POST_REMOVE.to_owned()));
    }
    control
}

fn control(release: &Release, package: &Package, files: &[File]) -> String {
    let bytes: usize = files.iter().map(|file| file.content.len()).sum();
    let depends = match package.has_service {
        true => {
            "Depends: systemd | systemd-standalone-sysusers | systemd-sysusers\n\
                 Suggests: prometheus\n"
        }
        false => "",
    };
    let description: String = package
        .description
        .iter()
        .map(|line| format!(" {line}\n"))
        .collect();
    format!(
        "Package: {}\nVersion: {}-{REVISION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {}\n{depends}Section: net\nPriority: optional\nHomepage: {HOMEPAGE}\n\
         Description: {}\n{description}",
        package.name,
        package.version,
        release.target.debian,
        bytes.div_ceil(1024),
        short(package.summary),
    )
}

/// Debian's summaries begin with no capital letter.
fn short(summary: &str) -> String {
    let mut letters = summary.chars();
    let first = letters.next().map(|it| it.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// The user and the directories of the service, under `DPKG_ROOT` where that is set. A service that
/// runs goes on as the new version; none is started, for there is nothing to split yet.
const POST_INSTALL: &str = "#!/bin/sh
set -e
if [ \"$1\" = configure ]; then
    systemd-sysusers --root=\"${DPKG_ROOT:-/}\" splitter.conf
    if [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
        systemd-tmpfiles --create splitter.conf || true
        systemctl --system daemon-reload || true
        if [ -n \"$2\" ]; then
            deb-systemd-invoke try-restart splitter.service splitter-fabric.service || true
        fi
    fi
fi
";

/// All that was put into the kernel is taken back before the program goes that could do it; but a leaf that
/// others still write to restores on, which it does without the program.
const PRE_REMOVE: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop splitter.service splitter-fabric.service || true
    splitter down --all || true
    splitter fabric down --all || true
    rmdir /sys/fs/bpf/splitter /sys/fs/bpf/splitter-fabric 2>/dev/null || true
fi
";

const POST_REMOVE: &str = "#!/bin/sh
set -e
if [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
fi
if [ \"$1\" = purge ]; then
    for service in splitter splitter-fabric; do
        rm -f \"$DPKG_ROOT/etc/systemd/system/multi-user.target.wants/$service.service\"
    done
    rmdir \"$DPKG_ROOT/etc/splitter\" 2>/dev/null || true
fi
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_is_indented_as_debian_asks() {
        let text = copyright("MIT License\n\nPermission is\n\nhereby granted");
        assert!(text.contains("License: Expat\n Permission is\n .\n hereby granted\n\nLicense: A"));
    }

    #[test]
    fn summary_begins_with_a_small_letter() {
        assert_eq!(short("Gives short"), "gives short");
        assert_eq!(short(""), "");
    }
}
