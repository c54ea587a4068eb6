//! Shaping, checking and restoring.

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use splitter_netlink::{InterfaceName, Netlink, NetlinkError, NoSuchInterface};
use thiserror::Error;

use super::plan::{Action, Plan};
use super::saved_qdisc::{SavedQdisc, Snapshot};
use super::wanted::{FQ_CODEL, Shape};

/// A plan that was carried out. Dropping it leaves everything in place.
#[derive(Debug)]
#[must_use = "what was shaped may have to be restored"]
pub struct Applied {
    changed: Vec<Action>,
}

/// Why tunnels could not be shaped, or not be restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The kernel refuses a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// This kernel has no such qdisc or filter.
    #[error(
        "cannot shape {device}: {source}; policy = \"share\" needs the kernel's htb, bfifo and \
         cls_bpf (`modprobe sch_htb cls_bpf`), or set policy = \"dedicated\""
    )]
    Unsupported {
        /// The device.
        device: InterfaceName,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// This kernel has no such queue for the long class.
    #[error(
        "cannot shape {device}: {source}; share.long_queue = \"fq_codel\" needs the kernel's fq_codel \
         (`modprobe sch_fq_codel`), or set share.long_queue = \"fifo\""
    )]
    NoFairQueue {
        /// The device.
        device: InterfaceName,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// A device is not there.
    #[error(transparent)]
    NoSuchInterface(#[from] NoSuchInterface),
    /// What a device has could not be restored afterwards.
    #[error(
        "{device} has {actual} as its root, which could not be restored as it is; remove it (`tc \
         qdisc del dev {device} root`), or set policy = \"dedicated\""
    )]
    Foreign {
        /// The device.
        device: InterfaceName,
        /// The root.
        actual: String,
    },
    /// The kernel took everything and shows something else.
    #[error(
        "the kernel does not show on {device} what was just added; compare `tc qdisc show dev \
         {device}` and `tc class show dev {device}` with `splitter plan`"
    )]
    NotInPlace {
        /// The device.
        device: InterfaceName,
    },
}

impl Plan {
    /// Carries the plan out and checks that the kernel has what was asked for. When that fails,
    /// what was changed until then is restored.
    ///
    /// # Errors
    /// The first failure.
    pub async fn apply(&self, netlink: &Netlink) -> Result<Applied, ShapeError> {
        let mut applied = Applied {
            changed: Vec::new(),
        };
        for action in &self.actions {
            let result = match action {
                Action::Keep { .. } => continue,
                Action::Shape { shape, .. } => {
                    applied.changed.push(action.clone());
                    put(netlink, shape).await
                }
                Action::Restore { original } => restore(netlink, original).await.map(drop),
            };
            if let Err(error) = result {
                applied.roll_back(netlink).await;
                return Err(error);
            }
        }
        Ok(applied)
    }
}

impl Applied {
    /// Restores what was there before. What cannot be restored is logged.
    pub async fn roll_back(self, netlink: &Netlink) {
        for action in self.changed.iter().rev() {
            if let Action::Shape { original, .. } = action
                && let Err(error) = restore(netlink, original).await
            {
                tracing::error!(event = "qdisc_not_restored", device = %original.device, %error, "cannot restore {original}");
            }
        }
    }
}

/// Restores all that an instance found. Returns in words what was removed.
///
/// # Errors
/// The first failure; the others are tried all the same.
pub async fn restore_all(
    netlink: &Netlink,
    originals: &[SavedQdisc],
) -> Result<Vec<String>, ShapeError> {
    let mut removed = Vec::new();
    let mut failed = None;
    for original in originals {
        match restore(netlink, original).await {
            Ok(true) => removed.push(format!(
                "shaping of {} (back to {original})",
                original.device
            )),
            Ok(false) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(removed),
    }
}

/// Takes our shaping off every device that has it, but those of `kept`, also where no state tells of
/// it: what was there before is not known then. Returns in words what was removed.
///
/// # Errors
/// The first failure; the others are tried all the same.
pub async fn remove_leftovers(
    netlink: &Netlink,
    kept: &[InterfaceName],
) -> Result<Vec<String>, ShapeError> {
    let mut originals = Vec::new();
    for interface in netlink.interfaces().await?.iter() {
        let Ok(device) = InterfaceName::try_from(interface.name.clone()) else {
            continue;
        };
        if kept.contains(&device) || !Snapshot::take(netlink, interface.index).await?.is_ours() {
            continue;
        }
        originals.push(SavedQdisc { device, root: None });
    }
    restore_all(netlink, &originals).await
}

/// Makes everything again. Until the filter is there packets pass unshaped.
async fn put(netlink: &Netlink, shape: &Shape) -> Result<(), ShapeError> {
    let Shape { device, index, .. } = shape;
    if Snapshot::take(netlink, *index).await?.has_our_root()
        && let Some(root) = shape.objects.first()
    {
        let request = format!("remove the earlier shaping of {device}");
        netlink.change(&request, root.to_remove(*index), 0).await?;
    }
    for (step, object) in shape.objects.iter().enumerate() {
        // The root takes the place of the one that is there.
        let flags = if step == 0 { NLM_F_REPLACE } else { NLM_F_EXCL };
        let request = format!("add a {} to {device}", object.kind);
        let added = netlink
            .change(&request, object.to_add(*index), NLM_F_CREATE | flags)
            .await;
        added.map_err(|source| match source.os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) if object.kind == FQ_CODEL => {
                ShapeError::NoFairQueue {
                    device: device.clone(),
                    source,
                }
            }
            Some(libc::ENOENT | libc::EOPNOTSUPP) => ShapeError::Unsupported {
                device: device.clone(),
                source,
            },
            _ => source.into(),
        })?;
    }
    if Snapshot::take(netlink, *index).await?.has(&shape.objects) {
        Ok(())
    } else {
        Err(ShapeError::NotInPlace {
            device: device.clone(),
        })
    }
}

/// Whether there was something of ours that gave way. A device that has gone, or that somebody
/// else has given another root, is left alone.
async fn restore(netlink: &Netlink, saved: &SavedQdisc) -> Result<bool, ShapeError> {
    let interfaces = netlink.interfaces().await?;
    let Ok(interface) = interfaces.named(&saved.device) else {
        return Ok(false);
    };
    let now = Snapshot::take(netlink, interface.index).await?;
    if !now.has_our_root() {
        return Ok(false);
    }
    let device = &saved.device;
    match saved.object() {
        Some(object) => {
            let request = format!("restore {saved} on {device}");
            let message = object.to_add(interface.index);
            netlink
                .change(&request, message, NLM_F_CREATE | NLM_F_REPLACE)
                .await?;
        }
        None => {
            let request = format!("remove the shaping of {device}");
            let root = super::wanted::root();
            netlink
                .change(&request, root.to_remove(interface.index), 0)
                .await?;
        }
    }
    Ok(true)
}
