//! OCI images: one layer on nothing (`FROM scratch`), in an archive that container tools load.
//!
//! A program that is linked statically needs no distribution around it, so an image has the program, its
//! configuration and its licences, and nobody has to update anything else in it. Formats: OCI image
//! specification 1.0, an image layout in a tar archive.

use std::io::Read as _;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Package, Release, tarball::Archive};

/// Below these is what takes a shell or a service manager, and an image has neither.
const LEFT_OUT: [&str; 8] = [
    "/usr/lib/systemd/",
    "/usr/lib/sysusers.d/",
    "/usr/lib/tmpfiles.d/",
    "/usr/share/bash-completion/",
    "/usr/share/doc/",
    "/usr/share/fish/",
    "/usr/share/man/",
    "/usr/share/zsh/",
];

/// The file's name.
pub(crate) fn name(release: &Release, package: &Package) -> String {
    let Package { name, version, .. } = package;
    format!("{name}-{version}-{}.oci.tar", release.target.triple)
}

/// Writes an image of a package as an archive.
///
/// # Errors
/// When a path is too long for an archive.
pub(crate) fn write(release: &Release, package: &Package) -> Result<Vec<u8>> {
    let mut layer = Archive::new(release);
    let is_kept = |path: &str| !LEFT_OUT.iter().any(|it| path.starts_with(it));
    for file in package.files.iter().filter(|it| is_kept(&it.path)) {
        layer.add(&file.path[1..], file.mode, &file.content)?;
    }
    let layer = layer.finish()?;
    let mut plain = Vec::new();
    GzDecoder::new(&*layer).read_to_end(&mut plain)?;
    let config = json!({
        "created": release.date("+%Y-%m-%dT%H:%M:%SZ")?,
        "architecture": release.target.debian,
        "os": "linux",
        "config": settings(package),
        "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] },
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] = json!({
        "org.opencontainers.image.ref.name": package.version,
        // Where docker and containerd look for the name that an image is loaded under.
        "io.containerd.image.name": format!("docker.io/library/{}:{}", package.program, package.version),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let mut archive = Archive::new(release);
    archive.add("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    archive.add("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    for blob in [&config, &manifest, &layer] {
        let hash = digest(blob);
        let hash = hash
            .strip_prefix("sha256:")
            .context("a digest has its name in front")?;
        archive.add(&format!("blobs/sha256/{hash}"), 0o644, blob)?;
    }
    archive.finish_plain()
}

/// How a container is started that is told nothing else.
fn settings(package: &Package) -> Value {
    let program = format!("/usr/bin/{}", package.program);
    let labels = json!({
        "org.opencontainers.image.title": package.name,
        "org.opencontainers.image.description": package.summary,
        "org.opencontainers.image.version": package.version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    });
    match package.has_service {
        // It gives up all capabilities but three by itself.
        true => {
            json!({ "Entrypoint": [program], "Cmd": ["run"], "Labels": labels, "StopSignal": "SIGTERM" })
        }
        false => json!({ "Entrypoint": [program], "User": "65534:65534", "Labels": labels }),
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(content))
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}
