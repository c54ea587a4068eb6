//! What the splitter needs of any machine.

use std::fs;
use std::path::Path;

use caps::{CapSet, Capability};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::sys::utsname::uname;
use splitter_config::Config;
use splitter_datapath::mount_command;
use splitter_netlink::{Family, Netlink};
use splitter_steering::routes::supports_exact_dscp;

use super::Check;

/// The oldest kernel that the programs are tested on.
const TESTED_KERNEL: (u32, u32) = (6, 1);
/// Native XDP on packets in several buffers, which the program is written for.
const OLDEST_KERNEL: (u32, u32) = (5, 18);

pub(super) async fn examine(netlink: &Netlink, config: Option<&Config>) -> Vec<Check> {
    let bpffs = config.map_or(Path::new("/sys/fs/bpf"), |config| &config.bpffs);
    let mut checks = of_programs(bpffs);
    let families = config.map_or(vec![Family::V4], |config| config.families().collect());
    checks.extend(families.iter().map(|&family| {
        let named = config.is_none_or(|config| config.names_next_hops(family));
        forwarding(family, named)
    }));
    checks.push(exact_dscp(netlink).await);
    checks
}

/// What a router of these families needs whose programs are pinned in a BPF file system.
pub(super) fn examine_for(bpffs: &Path, families: &[Family]) -> Vec<Check> {
    let mut checks = of_programs(bpffs);
    checks.extend(families.iter().map(|&family| forwarding(family, true)));
    checks
}

fn of_programs(bpffs: &Path) -> Vec<Check> {
    let mut checks = vec![kernel(), btf()];
    checks.extend(capabilities());
    checks.extend([mounted(bpffs), jit(), clock()]);
    checks
}

fn kernel() -> Check {
    let Ok(system) = uname() else {
        return Check::warn("kernel", "its version is not known", "see `uname -r`");
    };
    let release = system.release().to_string_lossy().into_owned();
    match version(&release) {
        Some(version) if version < OLDEST_KERNEL => Check::fail(
            "kernel",
            format!("Linux {release} lacks multi-buffer XDP"),
            "use Linux 6.1 or later",
        ),
        Some(version) if version < TESTED_KERNEL => Check::warn(
            "kernel",
            format!("Linux {release} is older than any that is tested"),
            "use Linux 6.1 or later",
        ),
        Some(_) => Check::ok("kernel", format!("Linux {release}")),
        None => Check::warn(
            "kernel",
            format!("the version of Linux {release} is not understood"),
            "make sure that it is 6.1 or later",
        ),
    }
}

/// The version of the kernel that runs, where it is understood.
pub(super) fn kernel_version() -> Option<(u32, u32)> {
    version(&uname().ok()?.release().to_string_lossy())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn btf() -> Check {
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    if Path::new(PATH).exists() {
        return Check::ok("kernel types (BTF)", PATH);
    }
    Check::warn(
        "kernel types (BTF)",
        format!("there is no {PATH}"),
        "use a kernel built with CONFIG_DEBUG_INFO_BTF, as the distributions' are",
    )
}

fn capabilities() -> Vec<Check> {
    let needed = [
        (Capability::CAP_BPF, "load the programs"),
        (
            Capability::CAP_NET_ADMIN,
            "attach them and change rules and routes",
        ),
        (
            Capability::CAP_PERFMON,
            "let the programs use pointers as they do",
        ),
    ];
    let check = |(capability, purpose): (Capability, &str)| {
        let name = format!("capability {capability}");
        let remedy = "run as root, or give the service AmbientCapabilities=CAP_BPF CAP_NET_ADMIN \
                      CAP_PERFMON";
        match caps::has_cap(None, CapSet::Effective, capability) {
            Ok(true) => Check::ok(name, format!("present, to {purpose}")),
            Ok(false) => Check::fail(name, format!("missing, needed to {purpose}"), remedy),
            Err(error) => Check::warn(name, format!("cannot be read: {error}"), remedy),
        }
    };
    needed.into_iter().map(check).collect()
}

fn mounted(bpffs: &Path) -> Check {
    let remedy = format!(
        "{}, or set bpffs to where it is mounted",
        mount_command(bpffs)
    );
    match statfs(bpffs) {
        Ok(status) if status.filesystem_type() == BPF_FS_MAGIC => {
            Check::ok("BPF file system", format!("mounted at {}", bpffs.display()))
        }
        Ok(_) => Check::fail(
            "BPF file system",
            format!("{} is another file system", bpffs.display()),
            remedy,
        ),
        Err(error) => Check::fail(
            "BPF file system",
            format!("{}: {}", bpffs.display(), error.desc()),
            remedy,
        ),
    }
}

/// A kernel that always compiles has no such parameter.
fn jit() -> Check {
    match fs::read_to_string("/proc/sys/net/core/bpf_jit_enable") {
        Ok(value) if value.trim() == "0" => Check::warn(
            "BPF compiler (JIT)",
            "off, so each packet costs several times as much",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Check::warn(
            "BPF compiler (JIT)",
            "net.core.bpf_jit_enable may be read by root only",
            "run this as root",
        ),
        _ => Check::ok("BPF compiler (JIT)", "on"),
    }
}

/// The program takes time stamps; with a slow clock source each is a device access.
fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path) {
        Ok(source) if matches!(source.trim(), "hpet" | "acpi_pm" | "jiffies") => Check::warn(
            "clock",
            format!("time stamps come from {}, which is slow", source.trim()),
            format!("see why the kernel does not trust a faster one (dmesg, {path})"),
        ),
        Ok(source) => Check::ok("clock", format!("time stamps come from {}", source.trim())),
        Err(error) => Check::warn(
            "clock",
            format!("{path}: {error}"),
            "see `dmesg | grep clocksource`",
        ),
    }
}

/// A point-to-point tunnel may well be used for IPv4 only, so IPv6 must be forwarded only where
/// next hops of it are `named`, as when the routes are verified.
fn forwarding(family: Family, named: bool) -> Check {
    let (path, key) = match family {
        Family::V4 => ("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward"),
        Family::V6 => (
            "/proc/sys/net/ipv6/conf/all/forwarding",
            "net.ipv6.conf.all.forwarding",
        ),
    };
    let check = format!("{family} forwarding");
    let remedy = format!("sysctl {key}=1");
    match fs::read_to_string(path) {
        Ok(value) if value.trim() != "0" => Check::ok(check, "on"),
        Ok(_) if named || family == Family::V4 => {
            Check::fail(check, "off: this is no router", remedy)
        }
        Ok(_) => Check::warn(check, format!("off, so no {family} is routed"), remedy),
        Err(error) => Check::warn(check, error.to_string(), format!("see `sysctl {key}`")),
    }
}

async fn exact_dscp(netlink: &Netlink) -> Check {
    match supports_exact_dscp(netlink).await {
        Ok(true) => Check::ok("rules by DSCP", "matched exactly"),
        Ok(false) => Check::warn(
            "rules by DSCP",
            "this kernel's rules see only the low three bits of it",
            "keep marks that differ there, as the defaults do, and other marks off the site's \
             traffic; or use Linux 6.13 or later",
        ),
        Err(error) => Check::warn("rules by DSCP", error.to_string(), "see `ip rule help`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_distributions_write_them() {
        assert_eq!(version("6.1.0-28-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("6.18-rc3"), Some((6, 18)));
        assert_eq!(version("unknown"), None);
    }
}
