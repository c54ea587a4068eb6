//! XDP on the LAN interfaces: what the driver has, and whose program is there already.

use std::fs;

use splitter_config::{AttachMode, Config};
use splitter_datapath::{Dataplane, ForeignProgram, Pins, foreign_program_remedy};
use splitter_netlink::{DeviceFeatures, Interface};

use super::Check;

/// The numbers of the programs of this instance; `None` where the caller may not look.
pub(super) fn ours(config: &Config) -> Option<Vec<u32>> {
    let pins = Pins::new(&config.bpffs, &config.pin_dir());
    pins.check_readable().ok()?;
    match pins.exist() {
        true => Dataplane::program_ids(&pins).ok(),
        false => Some(Vec::new()),
    }
}

/// A program of somebody else where ours would go.
pub(super) fn in_the_way(interface: &Interface, ours: Option<&[u32]>) -> Option<Check> {
    let id = interface.xdp?.program_id;
    let check = format!("XDP on {}", interface.name);
    match ours {
        Some(ours) if ours.contains(&id) => None,
        Some(_) => {
            let other = ForeignProgram::of_id(id);
            let remedy = foreign_program_remedy(&interface.name, Some(&other));
            let detail = format!("another program is attached: {other}");
            Some(Check::fail(check, detail, remedy))
        }
        None => Some(Check::warn(
            check,
            format!(
                "program number {id} is attached, and the kernel does not say whether it is the splitter's"
            ),
            "run this as root, or as the user who brought the instance up",
        )),
    }
}

/// A program of somebody else in front of ours, which runs at TC ingress.
pub(super) fn running_alongside(interface: &Interface, ours: Option<&[u32]>) -> Option<Check> {
    let id = interface.xdp?.program_id;
    if ours.is_some_and(|ours| ours.contains(&id)) {
        return None;
    }
    let other = ForeignProgram::of_id(id);
    Some(Check::ok(
        format!("XDP on {}", interface.name),
        format!("{other}, stays; what it drops or redirects is not seen by the splitter"),
    ))
}

/// Whether the driver runs programs of XDP as the configuration asks.
pub(super) fn possible(interface: &Interface, features: DeviceFeatures, mode: AttachMode) -> Check {
    let check = format!("XDP on {}", interface.name);
    let driver = driver(interface);
    match (features.native_xdp, mode) {
        (_, AttachMode::Generic) => Check::ok(check, "generic, as configured"),
        (Some(true), _) => Check::ok(check, format!("{driver} runs it natively")),
        (Some(false), AttachMode::Native) => Check::fail(
            check,
            format!("{driver} cannot run it natively"),
            "set attach.mode to \"auto\" or \"generic\", or use another interface",
        ),
        (Some(false), AttachMode::Auto) => Check::warn(
            check,
            format!("{driver} cannot run it natively, so it will be generic, which is slower"),
            "use an interface whose driver has XDP, if that matters",
        ),
        (None, _) => Check::warn(
            check,
            format!("this kernel cannot say whether {driver} runs it natively"),
            "run `splitter up`; `splitter status` then shows the mode that it got",
        ),
    }
}

/// The driver behind an interface; virtual ones are known by their kind.
pub(super) fn driver(interface: &Interface) -> String {
    let of_parent = |link: &splitter_netlink::ParentDevice| {
        let path = format!("/sys/bus/{}/devices/{}/driver", link.bus, link.device);
        let driver = fs::read_link(path).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    match &interface.kind {
        Some(kind) => format!("driver {kind}"),
        None => match interface.parent.as_ref().and_then(of_parent) {
            Some(driver) => format!("driver {driver}"),
            None => "its driver".to_owned(),
        },
    }
}
