//! Putting other programs in the place of those that an earlier version has left attached.
//!
//! Links stay, and go from the old program to the new one in one step each, so that every packet
//! meets one of the two.

use aya::programs::Xdp;
use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::xdp::XdpLink;
use splitter_config::SteeringMode;

use super::error::program_error;
use super::inherit::{self, FoundTables, InheritedFlows};
use super::load::KeptMaps;
use super::program::Program;
use super::program::program_name;
use super::{Dataplane, KernelError, LoadOptions, Object, Pins, TableSizes, chain, load};

impl Dataplane {
    /// Loads `object` with maps of its own, puts it in the place of the pinned program on every
    /// interface, and pins it there. Flows are known on, as far as [`InheritedFlows`] says. The earlier
    /// program and its maps are kept until [`settle`](Self::settle), for [`take_back`](Self::take_back).
    ///
    /// # Errors
    /// See [`KernelError`]. The earlier programs stay in place then.
    pub fn replace(
        object: &Object,
        pins: &Pins,
        options: &LoadOptions,
    ) -> Result<(Self, InheritedFlows), KernelError> {
        let tables = FoundTables::look(pins, options.tables, options.numa_node);
        let keep = |staged: &Pins| tables.keep(pins, staged);
        Self::replace_keeping(object, pins, options, (&tables, &keep))
    }

    /// Puts the programs of `object`, which are pinned, in their own place, with flow tables of another
    /// size or on another NUMA node. All else that they know stays: counters, models and counts of what
    /// left. Otherwise as [`replace`](Self::replace).
    ///
    /// # Errors
    /// See [`KernelError`]. The earlier programs stay in place then.
    pub fn resize(
        object: &Object,
        pins: &Pins,
        options: &LoadOptions,
    ) -> Result<(Self, InheritedFlows), KernelError> {
        let tables = FoundTables::look(pins, options.tables, options.numa_node);
        let keep = |staged: &Pins| inherit::carry(pins, staged);
        Self::replace_keeping(object, pins, options, (&tables, &keep))
    }

    /// The sizes of the flow tables that are pinned, of whichever build they are; none where this one
    /// does not know them.
    #[must_use]
    pub fn pinned_table_sizes(pins: &Pins) -> Option<TableSizes> {
        inherit::pinned_sizes(pins)
    }

    #[allow(clippy::type_complexity, reason = "all that the callers differ in")]
    fn replace_keeping(
        object: &Object,
        pins: &Pins,
        options: &LoadOptions,
        (tables, keep): (
            &FoundTables,
            &dyn Fn(&Pins) -> Result<KeptMaps, KernelError>,
        ),
    ) -> Result<(Self, InheritedFlows), KernelError> {
        let staged = pins.staged();
        staged.discard()?;
        staged.prepare()?;
        let handed_over = keep(&staged).and_then(|kept| {
            load::load(object, &staged, options, &kept)?;
            let flows = tables.hand_on(pins, &staged, options);
            hand_over(pins, &staged, options.steering)?;
            tables.catch_up(pins, &staged, options);
            Ok(flows)
        });
        let flows = handed_over.inspect_err(|_| {
            // The first error is the one to report; the next `up` or `down` removes what is left.
            let _ = staged.discard();
        })?;
        let adopted = pins.adopt(&staged).and_then(|()| {
            Self::open(pins)?.ok_or(KernelError::Missing {
                kind: "program",
                name: program_name(options.steering),
            })
        });
        let dataplane = adopted.inspect_err(|_| {
            if let Err(error) = Self::take_back(pins, options.steering) {
                tracing::error!(event = "programs_not_restored", %error, "cannot restore the earlier programs");
            }
            let _ = staged.discard();
        })?;
        Ok((dataplane, flows))
    }

    /// Puts the programs that [`replace`](Self::replace) has replaced back in their place, with the
    /// flows that they knew.
    ///
    /// # Errors
    /// When a link or a pin cannot be moved. If it is a link the new programs stay on all of them.
    pub fn take_back(pins: &Pins, steering: SteeringMode) -> Result<(), KernelError> {
        let earlier = pins.earlier();
        let before = if earlier.exist() { &earlier } else { pins };
        hand_over(pins, before, steering)?;
        pins.restore()
    }

    /// Forgets the programs that were replaced.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn settle(&self) -> Result<(), KernelError> {
        self.pins().earlier().discard()
    }

    /// The kernel's id of the pinned program, of whatever version.
    ///
    /// # Errors
    /// When the pinned program cannot be opened.
    pub fn pinned_program_id(pins: &Pins) -> Result<u32, KernelError> {
        let steering = pins.pinned().unwrap_or(SteeringMode::Dscp);
        let program = Program::from_pin(pins, steering)?;
        program.id().map_err(program_error(program_name(steering)))
    }

    /// The kernel's ids of all programs that an interface may have of this instance: the pinned ones,
    /// which split and which count, and, where an agent was killed while it replaced them by others,
    /// those.
    ///
    /// # Errors
    /// When the pinned program cannot be opened.
    pub fn program_ids(pins: &Pins) -> Result<Vec<u32>, KernelError> {
        let others = [pins.staged(), pins.earlier()];
        let mut ids = vec![Self::pinned_program_id(pins)?];
        ids.extend(Self::counting_program_id(pins));
        for pins in others.iter().filter(|it| it.exist()) {
            ids.extend(Self::pinned_program_id(pins).ok());
            ids.extend(Self::counting_program_id(pins));
        }
        Ok(ids)
    }
}

/// Moves all links of `old` from its program to that of `new`, or none.
fn hand_over(old: &Pins, new: &Pins, steering: SteeringMode) -> Result<(), KernelError> {
    let interfaces = old.linked_interfaces().map_err(|source| KernelError::Pin {
        path: old.root().to_owned(),
        source,
    })?;
    let mut new = Program::from_pin(new, steering)?;
    for (index, interface) in interfaces.iter().enumerate() {
        let Err(error) = move_link(old, interface, &mut new) else {
            continue;
        };
        let mut before = Program::from_pin(old, steering)?;
        for interface in &interfaces[..index] {
            if let Err(error) = move_link(old, interface, &mut before) {
                tracing::error!(event = "programs_not_restored", interface, %error, "cannot attach the earlier program again");
            }
        }
        return Err(error);
    }
    Ok(())
}

fn move_link(pins: &Pins, interface: &str, program: &mut Program) -> Result<(), KernelError> {
    match program {
        Program::Xdp(program, name) => move_xdp_link(pins, interface, program, name),
        Program::Ingress(program) => chain::hand_over(pins, interface, program),
    }
}

fn move_xdp_link(
    pins: &Pins,
    interface: &str,
    program: &mut Xdp,
    name: &'static str,
) -> Result<(), KernelError> {
    let failed = |source: LinkError| KernelError::Link {
        interface: interface.to_owned(),
        source,
    };
    let pinned = PinnedLink::from_pin(pins.link(interface)).map_err(failed)?;
    let link = XdpLink::try_from(FdLink::from(pinned)).map_err(failed)?;
    program
        .attach_to_link(link)
        .map(drop)
        .map_err(program_error(name))
}
