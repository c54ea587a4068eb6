//! Somebody who may look at nothing but what all may.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use super::site::{BINARY, Site, output};

/// Lets everybody reach the files of a site, so that capabilities alone are lacking.
pub(crate) fn open_to_everybody(site: &Site) {
    for path in ["bpf", "run", ""] {
        std::fs::set_permissions(site.path(path), Permissions::from_mode(0o777))
            .expect("it is ours");
    }
}

/// Runs the splitter without any rights.
pub(crate) fn as_nobody(site: &Site, arguments: &[&str]) -> Output {
    // A binary that lies where nobody may look could not be started.
    let binary = site.path("splitter");
    if !binary.exists() {
        // By another process: what this one has open for writing, a child of another thread may
        // hold for a while, and a file that somebody writes cannot be started.
        let copied = Command::new("cp").arg(BINARY).arg(&binary).status();
        assert!(copied.expect("it can be started").success());
    }
    let mut command = site.border().command(&binary.to_string_lossy());
    command.arg("--config").arg(site.config()).args(arguments);
    let drop_rights = || {
        nix::unistd::setgid(65_534.into())?;
        nix::unistd::setuid(65_534.into())?;
        Ok(())
    };
    // SAFETY: system calls alone between fork and exec.
    unsafe { command.pre_exec(drop_rights) };
    output(command)
}
