//! The difference between what an instance wants and what there is.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use splitter_config::{AttachMode, Config, SteeringMode};
use splitter_datapath::{
    AttachedMode, FlowsOutlook, ForeignProgram, KernelError, Pins, PrefixThresholds, TableSizes,
    program_kind,
};
use splitter_netlink::{InterfaceName, Interfaces};
use splitter_policy::config::PolicyConfig;
use splitter_policy::paths::SitePaths;
use splitter_steering::routes::{Action, Item};
use splitter_steering::{routes, shaping};

use crate::egress::EgressAttachment;
use crate::redirect::Redirect;
use crate::{InstanceError, Loaded, State, attached_mode};

/// Everything that bringing an instance up does, in order.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The kernel programs.
    pub program: ProgramAction,
    /// The settings that the programs read.
    pub settings: PolicyAction,
    /// The queues in front of shared tunnels.
    pub shaping: shaping::Plan,
    /// Rules and routes.
    pub routes: routes::Plan,
    /// How packets get into their tunnel.
    pub steering: SteeringMode,
    /// The mode whose kind of program is attached.
    #[serde(skip)]
    pub(crate) program_mode: SteeringMode,
    /// Which tunnels they are put into without the network stack, where that is asked for.
    pub redirect: Option<Redirect>,
    /// The program on each interface.
    pub attachments: Vec<Attachment>,
    /// The interfaces of the site that are not there, where that is no error: they are left out.
    pub absent: Vec<InterfaceName>,
    /// The program that counts what leaves by each tunnel. It is attached when packets are split
    /// already, and makes no difference to that.
    pub egress: Vec<EgressAttachment>,
    /// What becomes of the flows that the programs know which are replaced; none where none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowsOutlook>,
    /// Flows that the flow tables are made for.
    pub table_flows: TableSizes,
    /// Memory that the kernel sets aside for the flow tables, in bytes.
    pub table_bytes: u64,
    #[serde(skip)]
    pub(crate) policy: PolicyConfig,
    #[serde(skip)]
    pub(crate) prefixes: PrefixThresholds,
    #[serde(skip)]
    pub(crate) paths: Option<SitePaths>,
}

/// Says what happens to the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramAction {
    /// They are loaded already.
    Keep,
    /// They are loaded and pinned.
    Load,
    /// Those of another build or log level are replaced where they are; [`Plan::flows`] says what becomes of
    /// flows.
    Replace,
    /// They are put in their own place with flow tables of another size or on another NUMA node, into which flows are
    /// copied.
    Resize,
}

/// Says what happens to the settings of the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyAction {
    /// They are in force already.
    Keep,
    /// They are written; flows keep what is known of them.
    Write,
}

/// Says what happens to the program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachmentAction {
    /// It is attached as wanted.
    Keep,
    /// It is attached.
    Attach,
    /// It is attached in another mode than wanted, and attached again.
    Reattach,
    /// The interface is in the configuration no more.
    Detach,
}

/// The program on one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// The interface.
    pub interface: InterfaceName,
    /// What happens.
    pub action: AttachmentAction,
    /// The mode that is asked for.
    pub mode: AttachMode,
}

impl Plan {
    /// Returns what is changed of what packets meet, in words; what stays is left out.
    pub fn steps(&self) -> Vec<String> {
        let lines = Split(self).to_string();
        let changes = lines.lines().filter(|line| !line.starts_with('='));
        changes.map(ToOwned::to_owned).collect()
    }

    /// Returns true where there is nothing to change of what packets meet.
    pub fn is_unchanged(&self) -> bool {
        self.program == ProgramAction::Keep
            && self.settings == PolicyAction::Keep
            && self.shaping.is_in_place()
            && self.routes.is_in_place()
            && self.redirect.as_ref().is_none_or(|it| it.in_place)
            && self
                .attachments
                .iter()
                .all(|it| it.action == AttachmentAction::Keep)
    }
}

pub(crate) struct Inputs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) interfaces: &'a Interfaces,
    pub(crate) loaded: &'a Loaded,
    pub(crate) pins: &'a Pins,
    pub(crate) tables: TableSizes,
    pub(crate) policy: PolicyConfig,
    pub(crate) prefixes: PrefixThresholds,
    pub(crate) paths: Option<SitePaths>,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) absent: Vec<InterfaceName>,
    pub(crate) egress: Vec<EgressAttachment>,
}

pub(crate) fn assemble(
    inputs: &Inputs<'_>,
    shaping: shaping::Plan,
    mut routes: routes::Plan,
) -> Result<Plan, InstanceError> {
    let numa_node = inputs.config.flows.table_numa_node.number();
    let redirect = inputs.redirect.clone();
    routes
        .notes
        .extend(redirect.iter().flat_map(Redirect::notes));
    let refused = refused(&routes.actions, inputs.interfaces);
    routes.notes.extend(refused);
    routes.notes.extend(ports(inputs.config, inputs.interfaces));
    let (program, settings) = match inputs.loaded {
        Loaded::Nothing => (ProgramAction::Load, PolicyAction::Write),
        Loaded::OtherBuild { .. } => (ProgramAction::Replace, PolicyAction::Write),
        Loaded::Current(dataplane) => {
            let same =
                dataplane.policy()? == inputs.policy && dataplane.site_paths()? == inputs.paths;
            let lies_right = dataplane.table_sizes()? == inputs.tables
                && dataplane.table_numa_node() == numa_node;
            (
                match lies_right {
                    true => ProgramAction::Keep,
                    false => ProgramAction::Resize,
                },
                match same {
                    true => PolicyAction::Keep,
                    false => PolicyAction::Write,
                },
            )
        }
    };
    let is_replaced = matches!(program, ProgramAction::Replace | ProgramAction::Resize);
    Ok(Plan {
        program,
        flows: is_replaced.then(|| FlowsOutlook::of(inputs.pins, inputs.tables, numa_node)),
        settings,
        shaping,
        routes,
        steering: inputs.config.steering.mode,
        program_mode: inputs.config.program_mode(),
        redirect,
        attachments: attachments(inputs)?,
        absent: inputs.absent.clone(),
        egress: inputs.egress.clone(),
        table_flows: inputs.tables,
        table_bytes: inputs.tables.bytes(),
        policy: inputs.policy,
        prefixes: inputs.prefixes.clone(),
        paths: inputs.paths,
    })
}

/// Says by which devices the kernel takes no route, of those that routes are to lead by.
fn refused(actions: &[Action], interfaces: &Interfaces) -> Vec<String> {
    let routes = actions.iter().filter_map(|action| match action {
        Action::Add(Item::Route(route)) => Some(route),
        Action::Replace(replacement) => Some(&replacement.to),
        _ => None,
    });
    let hops = routes.flat_map(|route| &route.next_hops);
    let devices: BTreeSet<_> = hops.map(|hop| hop.device.as_str()).collect();
    let is_down = |device: &str| interfaces.iter().any(|it| it.name == device && !it.is_up);
    let down = devices.into_iter().filter(|device| is_down(device));
    down.map(|device| {
        format!(
            "{device} is down, and the kernel takes no route by it: `up` fails until `ip link set {device} up`, and `run` \
             starts without it"
        )
    })
    .collect()
}

/// Says which interfaces of the site no rule can select.
fn ports(config: &Config, interfaces: &Interfaces) -> Vec<String> {
    // Routes are looked up for the port itself then.
    if config.steering.mode == SteeringMode::Redirect {
        return Vec::new();
    }
    let present = config.lan.iter().filter_map(|it| interfaces.named(it).ok());
    let seen = present.filter_map(|it| Some((&it.name, &interfaces.seen_as(it)?.name)));
    seen.map(|(port, seen)| {
        format!("{port} is a port of {seen}, by which its packets are taken to come: none is split; name {seen} in its place in `lan`")
    })
    .collect()
}

/// Refuses another steering mode than that of the instance that is up. Where packets choose, the kind of the program does
/// not tell them apart.
pub(crate) fn mode_stays(config: &Config, state: Option<&State>) -> Result<(), InstanceError> {
    let wanted = config.steering.mode;
    let in_force = state.and_then(State::config_in_force);
    match in_force.map(|it| it.steering.mode) {
        Some(loaded) if loaded != wanted => Err(InstanceError::OtherSteering { loaded, wanted }),
        _ => Ok(()),
    }
}

fn attachments(inputs: &Inputs<'_>) -> Result<Vec<Attachment>, InstanceError> {
    let Inputs {
        config,
        interfaces,
        loaded,
        pins,
        ..
    } = *inputs;
    let steering = config.program_mode();
    if let Some(loaded) = pins.pinned().filter(|it| *it != steering) {
        return Err(InstanceError::OtherSteering {
            loaded,
            wanted: steering,
        });
    }
    let program_ids = match loaded {
        Loaded::Nothing => Vec::new(),
        Loaded::Current(dataplane) => vec![dataplane.program_id()?],
        Loaded::OtherBuild { program_ids, .. } => program_ids.clone(),
    };
    let mut attachments = Vec::new();
    let absent = &inputs.absent;
    for name in config.lan.iter().filter(|it| !absent.contains(it)) {
        let interface = interfaces.named(name)?;
        let mut ids = program_ids.iter();
        let present = ids.find_map(|id| attached_mode(interfaces, config, name, *id));
        // The kernel runs one XDP program on an interface, in whichever mode.
        if let (None, Some(other)) = (present, interface.xdp)
            && steering != SteeringMode::Mark
        {
            let busy = KernelError::Busy {
                interface: name.to_string(),
                program: Some(ForeignProgram::of_id(other.program_id)),
            };
            return Err(busy.into());
        }
        let action = match (present, config.attach.mode) {
            (None, _) => AttachmentAction::Attach,
            (Some(AttachedMode::Generic), AttachMode::Native)
            | (Some(AttachedMode::Native), AttachMode::Generic) => AttachmentAction::Reattach,
            (Some(_), _) => AttachmentAction::Keep,
        };
        attachments.push(Attachment {
            interface: name.clone(),
            action,
            mode: config.attach.mode,
        });
    }
    let linked = match program_ids.as_slice() {
        [] => Vec::new(),
        _ => pins.linked_interfaces().unwrap_or_default(),
    };
    for name in linked {
        let Ok(interface) = InterfaceName::try_from(name) else {
            continue;
        };
        if !config.lan.contains(&interface) {
            let action = AttachmentAction::Detach;
            attachments.push(Attachment {
                interface,
                action,
                mode: config.attach.mode,
            });
        }
    }
    Ok(attachments)
}

/// The flow tables as a part of a sentence: what they hold and take.
struct Tables(TableSizes);

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(sizes) = self;
        // To a tenth: on a small router it is one and a bit.
        let mebibytes = sizes.bytes() as f64 / f64::from(1 << 20);
        write!(
            f,
            "the flow tables take {mebibytes:.1} MiB for {} flows of IPv4 and {} of IPv6",
            sizes.ipv4, sizes.ipv6
        )
    }
}

/// All that packets meet, without the programs that count.
struct Split<'a>(&'a Plan);

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Split(self).fmt(f)?;
        for EgressAttachment { device, action } in &self.egress {
            match action {
                AttachmentAction::Keep => writeln!(f, "= count what leaves by {device}")?,
                AttachmentAction::Attach | AttachmentAction::Reattach => {
                    writeln!(f, "+ count what leaves by {device}")?;
                }
                AttachmentAction::Detach => {
                    writeln!(f, "- count what leaves by {device} no more")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Split<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan) = self;
        match plan.program {
            ProgramAction::Keep => writeln!(f, "= keep the kernel programs")?,
            ProgramAction::Load => {
                writeln!(
                    f,
                    "+ load the kernel programs; {}",
                    Tables(plan.table_flows)
                )?;
            }
            ProgramAction::Replace | ProgramAction::Resize => {
                let what = match plan.program {
                    ProgramAction::Resize => {
                        "put the kernel programs in their place with other flow tables"
                    }
                    _ => "replace the kernel programs of another build, log level or balance",
                };
                write!(f, "~ {what}, without a gap; {}", Tables(plan.table_flows))?;
                match &plan.flows {
                    Some(flows) => writeln!(f, "; {flows}")?,
                    None => writeln!(f)?,
                }
            }
        }
        match plan.settings {
            PolicyAction::Keep => writeln!(f, "= keep their settings")?,
            PolicyAction::Write => writeln!(f, "+ write their settings")?,
        }
        write!(f, "{}", plan.shaping)?;
        writeln!(f, "{}", plan.routes)?;
        if let Some(redirect) = &plan.redirect {
            writeln!(f, "{redirect}")?;
        }
        let program = program_kind(plan.program_mode);
        let mode = |mode: &AttachMode| match plan.program_mode {
            SteeringMode::Mark => String::new(),
            SteeringMode::Dscp | SteeringMode::Redirect => format!(" (mode {mode})"),
        };
        for Attachment {
            interface,
            action,
            mode: wanted,
        } in &plan.attachments
        {
            let mode = mode(wanted);
            match action {
                AttachmentAction::Keep => writeln!(f, "= keep the {program} on {interface}")?,
                AttachmentAction::Attach => {
                    writeln!(f, "+ attach the {program} to {interface}{mode}")?
                }
                AttachmentAction::Reattach => {
                    writeln!(f, "~ attach the {program} to {interface} again{mode}")?
                }
                AttachmentAction::Detach => writeln!(f, "- detach the {program} from {interface}")?,
            }
        }
        Ok(())
    }
}
