//! Packages for distributions that use rpm.

use anyhow::Result;
use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};

use crate::{
    File, Kind, Package, Release,
    deb::{HOMEPAGE, MAINTAINER},
};

/// Which packaging of a version it is.
const RELEASE: &str = "1";

/// The file name of a package.
pub fn name(release: &Release, package: &Package) -> String {
    let architecture = release.target.rpm;
    let Package { name, version, .. } = package;
    format!("{name}-{version}-{RELEASE}.{architecture}.rpm")
}

/// All bytes of a package.
///
/// # Errors
/// When the library refuses a file or a name.
pub fn write(release: &Release, package: &Package) -> Result<Vec<u8>> {
    let config = BuildConfig::v4()
        .source_date(release.source_date)
        .compression(CompressionWithLevel::Gzip(release.compression));
    let mut builder = PackageBuilder::new(
        package.name,
        &package.version,
        "MIT OR Apache-2.0",
        release.target.rpm,
        package.summary,
    );
    builder
        .using_config(config)
        .release(RELEASE)
        .url(HOMEPAGE)
        .vendor("The flow prioritisation developers")
        .packager(MAINTAINER)
        .group("System Environment/Daemons")
        .build_host("localhost")
        .description(package.description.join("\n"))
        .add_changelog_entry(
            format!("{} - {}-{RELEASE}", MAINTAINER, package.version),
            "- Packaged from the source tree; changelog.gz says what has changed.",
            release.source_date,
        );
    for file in &package.files {
        builder.with_file_contents(file.content.clone(), options(file))?;
    }
    if package.has_service {
        builder
            .requires(Dependency::any("systemd"))
            .post_install_script(POST_INSTALL)
            .pre_uninstall_script(PRE_REMOVE)
            .post_uninstall_script(POST_REMOVE);
    }
    let mut bytes = Vec::new();
    builder.build()?.write(&mut bytes)?;
    Ok(bytes)
}

fn options(file: &File) -> rpm::FileOptionsBuilder {
    // Where Fedora's shell looks for completions.
    let path = file
        .path
        .replace("/zsh/vendor-completions/", "/zsh/site-functions/");
    let permissions = u16::try_from(file.mode).unwrap_or(0o644);
    let options = FileOptions::new(path).permissions(permissions);
    match file.kind {
        Kind::Plain => options,
        Kind::Config => options.config().noreplace(),
        Kind::Doc => options.doc(),
        Kind::Licence => options.license(),
    }
}

/// Newer versions of rpm have made the user before. None is started, for there is nothing to split yet.
const POST_INSTALL: &str = "systemd-sysusers splitter.conf || :
if [ -d /run/systemd/system ]; then
    systemd-tmpfiles --create splitter.conf || :
    systemctl daemon-reload || :
fi
";

/// `$1` counts the versions that stay. All that was put into the kernel is taken back before the
/// program goes that could do it; but a leaf that others still write to restores on, which it does without
/// the program.
const PRE_REMOVE: &str = "if [ \"$1\" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now splitter.service splitter-fabric.service || :
    splitter down --all || :
    splitter fabric down --all || :
    rmdir /sys/fs/bpf/splitter /sys/fs/bpf/splitter-fabric 2>/dev/null || :
fi
";

const POST_REMOVE: &str = "if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ \"$1\" -ge 1 ]; then
        systemctl try-restart splitter.service splitter-fabric.service || :
    fi
fi
";
