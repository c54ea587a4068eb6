//! How the program is attached to the interfaces of the site.

use serde::Serialize;
use splitter_config::{Config, SteeringMode};
use splitter_datapath::{AttachedMode, Dataplane, Pins};
use splitter_netlink::{InterfaceName, Interfaces, XdpMode};

use crate::{Instance, InstanceError};

/// The program on one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedInterface {
    /// The interface.
    pub interface: InterfaceName,
    /// How it turned out.
    pub mode: AttachedMode,
}

impl Instance {
    /// How the program of that id is attached to each configured interface;
    /// those it is not attached to are left out.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn attached(&self, program_id: u32) -> Result<Vec<AttachedInterface>, InstanceError> {
        let interfaces = self.netlink.interfaces().await?;
        Ok(attached_among(&interfaces, &self.config, program_id))
    }
}

/// How the program of that id is attached to each configured interface; those it
/// is not attached to are left out.
pub fn attached_among(
    interfaces: &Interfaces,
    config: &Config,
    program_id: u32,
) -> Vec<AttachedInterface> {
    let lan = config.lan.iter();
    lan.filter_map(|name| {
        let mode = attached_mode(interfaces, config, name, program_id)?;
        Some(AttachedInterface {
            interface: name.clone(),
            mode,
        })
    })
    .collect()
}

pub(crate) fn attached_mode(
    interfaces: &Interfaces,
    config: &Config,
    name: &InterfaceName,
    program_id: u32,
) -> Option<AttachedMode> {
    let interface = interfaces.named(name).ok()?;
    if config.program_mode() == SteeringMode::Mark {
        let pins = Pins::new(&config.bpffs, &config.pin_dir());
        return Dataplane::attached_ingress(&pins, name.as_str(), interface.index, program_id);
    }
    let xdp = interface.xdp?;
    match xdp.mode {
        _ if xdp.program_id != program_id => None,
        XdpMode::Native => Some(AttachedMode::Native),
        XdpMode::Generic => Some(AttachedMode::Generic),
        _ => None,
    }
}
