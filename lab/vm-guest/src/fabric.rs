//! The roles of a leaf and of a spine in a fabric (`splitter fabric`).

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use nix::net::if_::if_nametoindex;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use splitter_policy::dscp::Dscp;
use splitter_policy::fabric::{Agreement, VlanTag, enter_leaf, leave_leaf, pass_spine};

use super::agent::{SPLITTER, expected_hook};
use super::network::{CABLES, Network, VLANS};
use super::qdiscs::count_clsact;

const CONFIG: &str = "/run/fabric.toml";
const PINS: &str = "/sys/fs/bpf/splitter-fabric";
const DSCP: u8 = 41;
const IP: usize = 14;

/// The port of either role.
const PORT: &str = CABLES[0].device;

/// A leaf with the site at its own port and the server at another leaf's: ACKs of connections are written,
/// and those of a VLAN on the port are not. The programs that are in place do to an ACK what the policy does.
pub(crate) fn leaf_writes_and_restores(network: &Network) -> Result<Vec<&'static str>> {
    let leaves = "[[fabric.leaves]]\nnumber = 0\nprefixes = ['10.0.1.0/24', 'fd00:1::/64']\n\
         [[fabric.leaves]]\nnumber = 1\nprefixes = ['10.0.9.0/24', 'fd00:9::/64']\n";
    let hook = bring_up("leaf", "", leaves)?;
    let agreement = agreement()?;
    for is_v6 in [false, true] {
        let sent = ack(is_v6, 63);
        let mut written = sent.clone();
        let left = leave_leaf(
            &mut written[..],
            &agreement,
            VlanTag::None,
            || true,
            |_| Some(1),
        );
        ensure!(left.is_ok(), "{left:?}");
        ensure!(
            run("leaf_egress", &sent)? == written,
            "written otherwise, v6: {is_v6}"
        );
        let mut reported = written.clone();
        let passed = pass_spine(&mut reported[..], &agreement, VlanTag::None, || {
            Some(7_000_000)
        });
        ensure!(passed.is_ok(), "{passed:?}");
        let mut entered = reported.clone();
        let heard = enter_leaf(&mut entered[..], &agreement, VlanTag::None, |_| Some(0));
        ensure!(heard.is_ok(), "{heard:?}");
        ensure!(
            entered == sent && run("leaf_ingress", &reported)? == sent,
            "restored otherwise, v6: {is_v6}"
        );
    }
    let before = count("acks", "written")?;
    network.connect()?.send(3, Duration::ZERO)?;
    let written = count("acks", "written")?;
    ensure!(written > before, "no ACK of a connection was written");
    let passed = count("passed", "vlan_tag")?;
    send(VLANS[0].device, &ack(false, 63))?;
    ensure!(
        count("passed", "vlan_tag")? == passed + 1 && count("acks", "written")? == written,
        "what leaves in a VLAN on the port is taken for the port's"
    );
    go_down()?;
    Ok(vec![hook])
}

/// A spine reports in what a leaf has written.
pub(crate) fn spine_reports(_: &Network) -> Result<Vec<&'static str>> {
    let hook = bring_up("spine", "rate_mbit = 100\n", "")?;
    let agreement = agreement()?;
    for is_v6 in [false, true] {
        let mut written = ack(is_v6, 63);
        let left = leave_leaf(
            &mut written[..],
            &agreement,
            VlanTag::None,
            || true,
            |_| Some(1),
        );
        ensure!(left.is_ok(), "{left:?}");
        let mut reported = written.clone();
        let passed = pass_spine(&mut reported[..], &agreement, VlanTag::None, || Some(0));
        ensure!(passed.is_ok(), "{passed:?}");
        ensure!(
            run("spine_ingress", &written)? == reported,
            "reported otherwise, v6: {is_v6}"
        );
    }
    ensure!(count("acks", "reported")? == 2, "{}", fabric("status")?);
    go_down()?;
    Ok(vec![hook])
}

fn agreement() -> Result<Agreement> {
    let dscp = Dscp::new(DSCP).context("six bits")?;
    Agreement::new(dscp, 3, 25_000_000).context("it is possible")
}

fn bring_up(role: &str, rate: &str, leaves: &str) -> Result<&'static str> {
    let hook = expected_hook()?;
    let text = format!(
        "[fabric]\nrole = '{role}'\ndscp = {DSCP}\n\
         [[fabric.ports]]\ndevice = '{PORT}'\n{rate}{leaves}"
    );
    fs::write(CONFIG, text)?;
    fabric("up")?;
    let status = status()?;
    let mode = &status["ports"][0]["mode"];
    ensure!(mode == hook, "attached as {mode}");
    Ok(hook)
}

fn go_down() -> Result<()> {
    fabric("down")?;
    ensure!(
        !Path::new(PINS).exists(),
        "something is left in the BPF file system"
    );
    let qdiscs = count_clsact()?;
    ensure!(qdiscs == 0, "{qdiscs} clsact queueing disciplines are left");
    Ok(())
}

fn count(of: &str, name: &str) -> Result<u64> {
    let status = status()?;
    let count = status[of][name].as_u64();
    count.with_context(|| format!("{of} has no {name}: {status}"))
}

fn status() -> Result<Value> {
    let reported = fabric("status")?;
    serde_json::from_str(&reported).with_context(|| format!("reported {reported}"))
}

/// Runs a subcommand to its end; what it printed.
fn fabric(command: &str) -> Result<String> {
    eprintln!("splitter fabric {command}");
    let output = Command::new(SPLITTER)
        .args(["-c", CONFIG, "--json", "fabric", command])
        .output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`splitter fabric {command}`: {log}"
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a program that is in place on a frame that has come from a host, or in by the port.
fn run(program: &str, frame: &[u8]) -> Result<Vec<u8>> {
    const NEXT: u32 = -1_i32 as u32;
    /// `ifindex` of a `__sk_buff`.
    const DEVICE: usize = 40;
    let mut context = [0; 48];
    context[DEVICE..][..4].copy_from_slice(&if_nametoindex(PORT)?.to_ne_bytes());
    let pin = Path::new(PINS).join("default").join(program);
    let loaded = SchedClassifier::from_pin(pin).context("cannot open the program")?;
    let mut out = vec![0; frame.len()];
    let ran = loaded.test_run(TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ctx_in: Some(&context),
        ..TestRunOptions::default()
    });
    let ran = ran.with_context(|| format!("the kernel does not run {program}"))?;
    ensure!(ran.return_value == NEXT, "{program} ends the chain");
    Ok(out)
}

/// A pure ACK of the site to the server.
fn ack(is_v6: bool, ttl: u8) -> Vec<u8> {
    const TCP: [u8; 20] = [
        0xc3, 0x50, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let mut frame = vec![2; 12];
    if is_v6 {
        let address = |net: u8| {
            let mut address = [0; 16];
            (address[0], address[3], address[15]) = (0xfd, net, 2);
            address
        };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, ttl]);
        frame.extend(address(1));
        frame.extend(address(9));
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 1, 0x40, 0, ttl, 6, 0, 0]);
        frame.extend([10, 0, 1, 2, 10, 0, 9, 9]);
        let words = frame[IP..].chunks(2);
        let sum: u32 = words
            .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
            .sum();
        let checksum = !((sum + (sum >> 16)) as u16);
        frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame.extend(TCP);
    frame
}

/// Sends a frame by a device as it is.
fn send(device: &str, frame: &[u8]) -> Result<()> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: if_nametoindex(device)?.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: frame and address are valid for as many bytes as are named, and only read.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    ensure!(
        sent == frame.len() as isize,
        "cannot send by {device}: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
