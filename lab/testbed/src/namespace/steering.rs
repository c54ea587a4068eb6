//! Keeps each flow on one CPU.
//!
//! A veth hands a packet to the CPU that sent it. A TCP sender runs now in its
//! process, now in the interrupt that brings an acknowledgement, so that two of
//! its packets may lie in the backlogs of two CPUs and change places: an order
//! that no real link would bring about, and that a measurement of reordering
//! must not see. Receive packet steering sends all packets of a flow to one CPU.

use std::fs;
use std::io;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::{Namespace, NamespaceError};

impl Namespace {
    /// Steers each flow that `device` receives to one CPU.
    ///
    /// # Errors
    /// [`NamespaceError::Steer`] when the device is not there or the kernel
    /// has no packet steering.
    pub fn keep_flows_in_order(&self, device: &str) -> Result<(), NamespaceError> {
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(32));
        let mask = format!("{:x}", u64::MAX >> (64 - cpus));
        self.enter(|| steer(device, &mask))?
            .map_err(|source| NamespaceError::Steer {
                name: self.name.to_string(),
                device: device.to_owned(),
                source,
            })
    }
}

/// The settings lie in sysfs, which shows the devices of the namespace that it
/// was mounted in; so one is mounted that only this thread sees.
fn steer(device: &str, mask: &str) -> io::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)?;
    for queue in fs::read_dir(format!("/sys/class/net/{device}/queues"))? {
        let queue = queue?;
        if queue.file_name().to_string_lossy().starts_with("rx-") {
            fs::write(queue.path().join("rps_cpus"), mask)?;
        }
    }
    Ok(())
}
