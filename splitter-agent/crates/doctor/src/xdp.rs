//! XDP on the LAN interfaces: what the driver has, and whose program is there already.

use std::fs;

use splitter_config::{AttachMode, Config, SteeringMode};
use splitter_datapath::{Dataplane, ForeignProgram, Pins, foreign_program_remedy};
use splitter_netlink::{DeviceFeatures, Interface, device_channels};

use super::drivers::{self, Device};
use super::{Check, machine};

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

/// What of an interface exceeds what its driver's XDP takes.
pub(super) async fn limits(
    interface: &Interface,
    features: DeviceFeatures,
    config: &Config,
) -> Vec<Check> {
    let (Some(driver), Some(kernel)) = (driver_name(interface), machine::kernel_version()) else {
        return Vec::new();
    };
    // In generic mode the driver is not asked.
    if config.attach.mode == AttachMode::Generic {
        return Vec::new();
    }
    let cpus = std::thread::available_parallelism().map_or(1, |it| it.get() as u32);
    drivers::judge(&Device {
        interface,
        driver: &driver,
        features,
        channels: device_channels(interface).await,
        cpus,
        kernel,
        redirects: config.steering.mode == SteeringMode::Redirect,
    })
}

/// The driver behind an interface, in words.
pub(super) fn driver(interface: &Interface) -> String {
    match driver_name(interface) {
        Some(name) => format!("driver {name}"),
        None => "its driver".to_owned(),
    }
}

/// The driver behind an interface; virtual ones are known by their kind.
fn driver_name(interface: &Interface) -> Option<String> {
    let of_parent = |link: &splitter_netlink::ParentDevice| {
        let path = format!("/sys/bus/{}/devices/{}/driver", link.bus, link.device);
        let driver = fs::read_link(path).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    match &interface.kind {
        Some(kind) => Some(kind.clone()),
        None => interface.parent.as_ref().and_then(of_parent),
    }
}
