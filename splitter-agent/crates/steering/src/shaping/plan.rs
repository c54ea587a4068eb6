//! The difference between how tunnels are shaped and how they are to be.

use std::fmt;

use serde::Serialize;
use splitter_config::Config;
use splitter_netlink::{InterfaceName, Interfaces, Netlink};

use super::ShapeError;
use super::saved_qdisc::{SavedQdisc, Snapshot};
use super::wanted::{Shape, absent, shapes};

/// Lists what has to be done, device by device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every step, and what stays.
    pub actions: Vec<Action>,
    /// The devices that are to be shaped and are not there: they are left out.
    #[serde(skip)]
    pub absent: Vec<InterfaceName>,
}

/// Says what becomes of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum Action {
    /// It is shaped as wanted.
    Keep {
        /// How.
        shape: Shape,
        /// What it had before.
        original: SavedQdisc,
    },
    /// It is shaped.
    Shape {
        /// How.
        shape: Shape,
        /// What it has now, or had before another shape of ours.
        original: SavedQdisc,
    },
    /// It is shared no more and gets back what it had.
    Restore {
        /// What it had.
        original: SavedQdisc,
    },
}

/// Compares what `config` wants with what the kernel has. Changes nothing. `previous` is what the
/// same instance found before it shaped.
///
/// # Errors
/// When a device has a root that could not be restored, or the kernel refuses a request.
pub async fn plan(
    netlink: &Netlink,
    config: &Config,
    interfaces: &Interfaces,
    previous: &[SavedQdisc],
) -> Result<Plan, ShapeError> {
    let mut actions = Vec::new();
    let shapes = shapes(config, interfaces);
    let absent = absent(config, interfaces);
    for original in previous {
        let is_wanted = shapes.iter().any(|shape| shape.device == original.device);
        // A device that has gone took everything along.
        let Ok(interface) = interfaces.named(&original.device) else {
            continue;
        };
        if !is_wanted
            && Snapshot::take(netlink, interface.index)
                .await?
                .has_our_root()
        {
            actions.push(Action::Restore {
                original: original.clone(),
            });
        }
    }
    for shape in shapes {
        let now = Snapshot::take(netlink, shape.index).await?;
        let before = previous.iter().find(|it| it.device == shape.device);
        let original = if now.has_our_root() {
            let default = || SavedQdisc {
                device: shape.device.clone(),
                root: None,
            };
            before.cloned().unwrap_or_else(default)
        } else {
            now.to_saved(&shape.device)
                .map_err(|actual| ShapeError::Foreign {
                    device: shape.device.clone(),
                    actual,
                })?
        };
        actions.push(if now.has(&shape.objects) {
            Action::Keep { shape, original }
        } else {
            Action::Shape { shape, original }
        });
    }
    Ok(Plan { actions, absent })
}

impl Plan {
    /// Returns true where the kernel has all that is wanted, and nothing else of ours.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let is_kept = |action: &Action| matches!(action, Action::Keep { .. });
        self.actions.iter().all(is_kept)
    }

    /// Returns true for a device that is shaped, or will be.
    pub fn shapes(&self, device: &InterfaceName) -> bool {
        self.originals().any(|it| it.device == *device)
    }

    /// Returns what has to be remembered to be restored later.
    pub fn originals(&self) -> impl Iterator<Item = &SavedQdisc> {
        self.actions.iter().filter_map(|action| match action {
            Action::Keep { original, .. } | Action::Shape { original, .. } => Some(original),
            Action::Restore { .. } => None,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep { shape, .. } => write!(f, "= {shape}"),
            Self::Shape { shape, original } => write!(f, "+ {shape} (in place of {original})"),
            Self::Restore { original } => {
                write!(f, "- shaping of {} (back to {original})", original.device)
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(f, "{action}")?;
        }
        Ok(())
    }
}
