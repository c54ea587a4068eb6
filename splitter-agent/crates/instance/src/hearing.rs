//! Has packets choose by what the spines of a fabric report, while the role of a leaf is in place beside the instance.

use splitter_datapath::HeardMaps;

use crate::{Instance, InstanceError};

/// State of what packets hear of a fabric, to be renewed now and then: the leaf's role comes and goes by itself.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    given: HeardMaps,
    /// How many tunnels were uplinks at last, or why that is not known.
    last: Option<Result<usize, String>>,
}

impl Hearing {
    /// Looks if the leaf is still what it was, and says what has changed.
    pub(crate) async fn renew(&mut self, instance: &Instance) {
        let Some(name) = &instance.config.fabric else {
            *self = Self::default();
            return;
        };
        let heard = instance.hear(&mut self.given).await;
        let heard = heard.map_err(|error| error.to_string());
        if self.last.as_ref() == Some(&heard) {
            return;
        }
        match &heard {
            Ok(uplinks) => tracing::info!(
                event = "fabric_heard", fabric = %name, uplinks,
                "tunnels that are uplinks of a leaf in place, by whose spines' reports packets choose"
            ),
            Err(error) => tracing::warn!(
                event = "fabric_unheard", fabric = %name, %error,
                "packets choose by the queues of this machine alone"
            ),
        }
        self.last = Some(heard);
    }
}

impl Instance {
    /// Returns how many tunnels are uplinks of the leaf by whose spines' reports packets choose.
    async fn hear(&self, given: &mut HeardMaps) -> Result<usize, InstanceError> {
        let (Some(directory), Some(mut dataplane)) = (self.config.heard_fabric(), self.open()?)
        else {
            return Ok(0);
        };
        let interfaces = self.netlink.interfaces().await?;
        let device = |it| Some(interfaces.named(it).ok()?.index);
        let tunnels = self.config.tunnels();
        let devices: Vec<_> = tunnels.map(|(_, it)| device(&it.device)).collect();
        Ok(dataplane.hear(&directory, &devices, given)?)
    }
}
