//! Whether the programs look at the queues that they are to look at.

use std::fs::File;
use std::fs::{read_to_string, write};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::{Array, Map, MapData};
use splitter_config::Config;
use splitter_datapath::Pins;
use splitter_netlink::root_queues;

use super::agent::{CONFIG, bring_up, configure, go_down, json};
use super::network::{CABLES, Network};
use super::qdiscs::{backlog, passed};

/// Where the agent notes the addresses of the queues' lengths in bytes.
const ADDRESSES: &str = "SHORT_QUEUES";
/// The short class' queue on either tunnel.
const SHORT_QUEUE: u32 = 0x7410 << 16;
/// That of the long class.
const LONG_QUEUE: u32 = 0x7420 << 16;
/// With some beyond twice the threshold, from which on a flow is in the long class whether it pauses or not.
const LONG_PACKETS: usize = 140;
/// What waits for a second then.
const WAITING_BYTES: usize = 120_000;
/// What each of some flows sends at once. All of them together wait for about a second.
const SENT_BYTES: usize = 30_000;
const FLOWS: usize = 8;
/// Three full packets.
const NARROW_BYTES: u32 = 4_500;
const PATIENCE: Duration = Duration::from_secs(10);

/// What lies at the addresses that the agent found is what the kernel reports of the queues.
pub(crate) fn are_seen(network: &Network) -> Result<Vec<&'static str>> {
    configure("dscp", "generic", CABLES, true)?;
    let log = bring_up("generic")?;
    let config = Config::parse(&read_to_string(CONFIG)?, CONFIG)?;
    let pin = Pins::new(&config.bpffs, &config.pin_dir()).map(ADDRESSES);
    let map = Map::Array(MapData::from_pin(pin).context("no addresses are pinned")?);
    // And the devices.
    let queues: Array<_, [u64; 3]> = map.try_into()?;
    let [first, second, _] = queues.get(&0, 0)?;
    let addresses = [first, second];
    ensure!(!addresses.contains(&0), "the queues were not found: {log}");
    let (asked, mut last) = (Instant::now(), [0; 3]);
    while asked.elapsed() < PATIENCE {
        let connections = (0..FLOWS).map(|_| network.connect());
        let mut connections = connections.collect::<Result<Vec<_>>>()?;
        for connection in &mut connections {
            connection.begin(&[7; SENT_BYTES])?;
        }
        // A flow starts in either tunnel.
        for (tunnel, address) in CABLES.iter().zip(addresses) {
            let [before, seen, after] = [
                backlog(tunnel.device, SHORT_QUEUE)?,
                kernel_memory(address)?,
                backlog(tunnel.device, SHORT_QUEUE)?,
            ];
            // Packets leave meanwhile, and in some readings others come. A number from elsewhere
            // would hardly ever be in between.
            last = [before, seen, after];
            if after > 0 && (after..=before).contains(&seen) && before - after < NARROW_BYTES {
                drop(connections);
                return go_down(network);
            }
        }
    }
    bail!("before, seen and after were {last:?} at last")
}

/// Where the kernel has it, the long class has a queue for each flow.
pub(crate) fn are_fair(network: &Network) -> Result<Vec<&'static str>> {
    configure("dscp", "generic", CABLES, true)?;
    let fair = "[share]\nlong_queue = 'fq_codel'\n";
    write(CONFIG, read_to_string(CONFIG)?.replace("[share]\n", fair))?;
    bring_up("generic")?;
    network.set_ecn(true)?;
    let mut connections = [network.connect()?, network.connect()?];
    network.set_ecn(false)?;
    for connection in &mut connections {
        connection.send(LONG_PACKETS, Duration::ZERO)?;
        connection.begin(&[7; WAITING_BYTES])?;
    }
    // While packets wait the kernel shows a class for each flow.
    let plan = json(&["plan"])?;
    ensure!(plan["changed"] == false, "{plan}");
    let mut of_long = 0;
    for tunnel in CABLES {
        let (kind, packets) = passed(tunnel.device, LONG_QUEUE)?;
        ensure!(kind == "fq_codel", "{kind}");
        of_long += packets;
    }
    ensure!(of_long >= 40, "{of_long} packets left by the long class");
    // What waits for longer than CoDel tolerates is marked, below the outermost queue.
    let asked = Instant::now();
    while marked()? == 0 {
        ensure!(asked.elapsed() < PATIENCE, "no packet was marked");
    }
    go_down(network)
}

/// Packets that queues of both tunnels have marked as congested.
fn marked() -> Result<u64> {
    let mut indices = Vec::new();
    for tunnel in CABLES {
        indices.push(nix::net::if_::if_nametoindex(tunnel.device)?);
    }
    let queues = root_queues().context("cannot read the queues")?;
    let ours = queues.iter().filter(|it| indices.contains(&it.interface));
    Ok(ours.map(|it| it.ecn_marks).sum())
}

/// A number in the kernel's memory, by the core file that it shows of itself (ELF, 64 bits).
fn kernel_memory(address: u64) -> Result<u32> {
    let core = File::open("/proc/kcore").context("the kernel shows no core")?;
    let word = |at: u64| -> Result<u64> {
        let mut bytes = [0; 8];
        core.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let headers = word(0x20)?;
    let (size, count) = (0x38, word(0x38)? & 0xffff);
    for number in 0..count {
        let header = headers + number * size;
        let (offset, start) = (word(header + 0x8)?, word(header + 0x10)?);
        let end = start.saturating_add(word(header + 0x28)?);
        if (start..end).contains(&address) {
            return Ok(word(offset + (address - start))? as u32);
        }
    }
    bail!("{address:x} is no memory of the kernel's")
}
