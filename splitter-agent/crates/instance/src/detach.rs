//! Taking programs off interfaces, and what was changed back when bringing an instance up fails.

use std::time::Duration;

use splitter_config::{AttachMode, SteeringMode};
use splitter_datapath::{Dataplane, Pins};
use splitter_netlink::{Netlink, Xdp};

use crate::{Instance, InstanceError, State};

/// What to take back when bringing up fails.
pub(crate) struct Undo {
    /// All of it, when the program was loaded just now.
    pub(crate) pins: Option<Pins>,
    pub(crate) attached: Vec<String>,
    /// Interfaces and their numbers that had the program in the other mode.
    pub(crate) replaced: Vec<(String, u32)>,
}

impl Instance {
    /// Detaches and waits until the kernel has done so, without which another
    /// program could not be attached.
    pub(crate) async fn detach(
        &self,
        dataplane: &Dataplane,
        interface: &str,
    ) -> Result<(), InstanceError> {
        let program_id = dataplane.program_id()?;
        dataplane.detach(interface)?;
        // Others do not keep a chain from taking one more, nor wait to be freed.
        if dataplane.steering() == SteeringMode::Mark {
            return Ok(());
        }
        wait_until_detached(&self.netlink, &[interface.to_owned()], program_id).await
    }

    /// The first error is the one to report; what cannot be taken back is logged.
    pub(crate) async fn undo(&self, undo: Undo, dataplane: &Dataplane) {
        for interface in undo.attached {
            if let Err(error) = self.detach(dataplane, &interface).await {
                tracing::error!(event = "undo_failed", interface, %error, "cannot detach what was just attached");
            }
        }
        let before = match self.config.attach.mode {
            AttachMode::Native => AttachMode::Generic,
            AttachMode::Generic | AttachMode::Auto => AttachMode::Native,
        };
        for (interface, index) in undo.replaced {
            if let Err(error) = dataplane.attach(&interface, index, before) {
                tracing::error!(event = "undo_failed", interface, %error, "cannot attach as it was before");
            }
        }
        if let Some(pins) = undo.pins
            && let Err(error) = pins.remove()
        {
            tracing::error!(event = "undo_failed", path = %pins.root().display(), %error, "cannot remove the pins");
        }
    }
}

impl Instance {
    /// Puts programs of another build back that were replaced before bringing up failed: their
    /// marks fit the rules that are there again, and they know the flows. `before` is what the state
    /// file said of them.
    ///
    /// # Errors
    /// When the state file cannot be written; the new programs stay then, and it says so.
    pub(crate) fn take_back(&self, before: Option<&State>) -> Result<(), InstanceError> {
        let directory = self.config.instance_dir();
        let Some(before) = before else {
            State::remove(&directory)?;
            self.put_programs_back();
            return Ok(());
        };
        // First, for the next agent if this one is killed here, of whichever build: it finds
        // programs of another one, and replaces them.
        before.clone().with_unknown_object().write(&directory)?;
        if self.put_programs_back() {
            before.write(&directory)?;
        }
        Ok(())
    }

    /// The same, where the state file says of which build they are; whether they are back. The first
    /// error is the one to tell; what cannot be taken back is logged.
    pub(crate) fn put_programs_back(&self) -> bool {
        let taken_back = Dataplane::take_back(&self.pins, self.config.program_mode());
        match &taken_back {
            Ok(()) => {
                tracing::warn!(
                    event = "programs_restored",
                    "restored the earlier kernel programs, with the flows they knew"
                );
            }
            Err(error) => {
                tracing::error!(event = "programs_not_restored", %error, "cannot restore the earlier kernel programs: the new ones stay, until the next `up` replaces them");
            }
        }
        taken_back.is_ok()
    }
}

/// The kernel frees a link some time after its pin is removed.
pub(crate) async fn wait_until_detached(
    netlink: &Netlink,
    names: &[String],
    program_id: u32,
) -> Result<(), InstanceError> {
    for _ in 0..DETACH_TRIES {
        let interfaces = netlink.interfaces().await?;
        let is_ours = |xdp: &Xdp| xdp.program_id == program_id;
        if !interfaces
            .iter()
            .any(|it| names.contains(&it.name) && it.xdp.as_ref().is_some_and(is_ours))
        {
            return Ok(());
        }
        tokio::time::sleep(DETACH_POLL).await;
    }
    // Attaching again will tell, if that is what comes next.
    tracing::warn!(event = "detach_slow", interfaces = ?names, "the kernel takes long to detach the program");
    Ok(())
}

/// How often, and how many times, it is looked whether the kernel has detached.
const DETACH_POLL: Duration = Duration::from_millis(5);
const DETACH_TRIES: u32 = 200;
