//! Somebody who may look at nothing but what all may.

use std::os::unix::process::CommandExt as _;
use std::process::Output;

use super::site::{BINARY, Site, output};

/// Runs the splitter without any rights.
pub(crate) fn as_nobody(site: &Site, arguments: &[&str]) -> Output {
    // A binary that lies where nobody may look could not be started.
    let binary = site.path("splitter");
    if !binary.exists() {
        std::fs::copy(BINARY, &binary).expect("there is room");
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
