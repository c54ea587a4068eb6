//! Packets with the border's own source address, for a while.

use std::path::PathBuf;
use std::{fs, io};

use splitter_netlink::InterfaceName;

/// Lets IPv4 accept packets with the border's own source on an interface, until it is dropped.
///
/// Without it they are "martians": the reverse path of a forwarded packet must not lead to the
/// border itself (`__fib_validate_source` of the kernel). IPv6 has no such check.
#[derive(Debug)]
pub(crate) struct AcceptLocal {
    /// What is to be written back, where something was changed.
    changed: Option<(PathBuf, String)>,
}

impl AcceptLocal {
    /// Sets `net.ipv4.conf.INTERFACE.accept_local`, unless it is set.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn on(interface: &InterfaceName) -> io::Result<Self> {
        let path = PathBuf::from("/proc/sys/net/ipv4/conf")
            .join(interface.as_str())
            .join("accept_local");
        let before = fs::read_to_string(&path)?.trim().to_owned();
        if before != "0" {
            return Ok(Self { changed: None });
        }
        fs::write(&path, "1")?;
        Ok(Self {
            changed: Some((path, before)),
        })
    }
}

impl Drop for AcceptLocal {
    fn drop(&mut self) {
        if let Some((path, before)) = &self.changed
            && let Err(error) = fs::write(path, before)
        {
            tracing::error!(path = %path.display(), %error, "cannot write {before} back");
        }
    }
}
