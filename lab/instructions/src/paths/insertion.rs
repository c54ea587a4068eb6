//! First packets of flows, by what they find in the table.

use anyhow::{Context as _, Result};
use splitter_policy::table::{GROUP_SLOTS, PROTECTED_PACKETS, Slot, SlotV4, SlotV6};

use super::{FAMILIES, Path, SYN, Segment, eager, segment};
use crate::border::{Border, Measured};
use crate::packet::Ip;

pub(super) fn paths() -> Vec<Path> {
    let [v4, v6] = FAMILIES;
    let mut paths = of_family(v4, SlotV4::LINE_SLOTS);
    paths.extend(of_family(v6, SlotV6::LINE_SLOTS));
    paths
}

const STARTED: [&str; 4] = ["pass", "Short on Short", "Started", "dscp 4"];
const EVICTED: [&str; 5] = ["pass", "Short on Short", "Started", "Evicted", "dscp 4"];

/// The precise clock is read for so many new flows in a tick, and as many live flows are evicted
/// before that counts as a flood.
const BUDGET: usize = splitter_policy::counters::TickBudget::PER_TICK as usize;

fn of_family((family, frame): (&'static str, Segment), line_slots: usize) -> Vec<Path> {
    let split =
        |name: &str, does: &[&str], course: fn(&mut Border, Meeting) -> Result<Measured>| {
            let meeting = Meeting { frame, line_slots };
            let name = format!("{name}_{family}");
            Path::new(name, "split", eager(), does, move |border| {
                course(border, meeting)
            })
        };
    vec![
        split("insertion", &STARTED, |border, it| {
            inserted(border, &(it.frame)(1))
        }),
        split("insertion_syn", &STARTED, |border, it| {
            let ip = if it.is_v6() {
                Ip::v6(Vec::new())
            } else {
                Ip::v4()
            };
            inserted(border, &segment(ip, 1, SYN, 0).bytes())
        }),
        split("insertion_beyond_clock_budget", &STARTED, |border, it| {
            for flow in 0..BUDGET as u16 {
                border.send(&(it.frame)(flow))?;
            }
            inserted(border, &(it.frame)(BUDGET as u16))
        }),
        split("insertion_where_one_is_over", &STARTED, |border, it| {
            let flows = it.flows(border, GROUP_SLOTS + 1)?;
            it.fill(border, &flows[..GROUP_SLOTS], 1)?;
            border.end_flows();
            inserted(border, &flows[GROUP_SLOTS])
        }),
        split("insertion_displaced", &STARTED, |border, it| {
            let flows = it.flows(border, it.line_slots + 1)?;
            it.fill(border, &flows[..it.line_slots], 1)?;
            inserted(border, &flows[it.line_slots])
        }),
        split("insertion_evicting", &EVICTED, |border, it| {
            let flows = it.flows(border, GROUP_SLOTS + 1)?;
            it.fill(border, &flows[..GROUP_SLOTS], 1)?;
            inserted(border, &flows[GROUP_SLOTS])
        }),
        split(
            "known_short_displaced",
            &["pass", "Short on Short", "dscp 4"],
            |border, it| {
                let flows = it.flows(border, it.line_slots + 1)?;
                it.fill(border, &flows, 2)?;
                border.measure(&flows[it.line_slots])
            },
        ),
        split("table_full", &["pass", "table_full"], |border, it| {
            let flows = it.flows(border, GROUP_SLOTS + 1)?;
            it.fill(border, &flows[..GROUP_SLOTS], PROTECTED_PACKETS as usize)?;
            border.measure(&flows[GROUP_SLOTS])
        }),
        split("flood", &["pass", "Short on Short", "dscp 4"], flood),
    ]
}

/// Sends the first packet of a flow, and makes sure that the flow has a slot then: its next packet is
/// no first one.
fn inserted(border: &mut Border, frame: &[u8]) -> Result<Measured> {
    let mut measured = border.measure(frame)?;
    let next = border.measure(frame)?;
    if next
        .done
        .iter()
        .any(|it| it == "Started" || it == "table_full")
    {
        measured.done.push("the flow was not inserted".to_owned());
    }
    Ok(measured)
}

/// So many flows come and evict each other within a tick that one passes the table by.
fn flood(border: &mut Border, it: Meeting) -> Result<Measured> {
    let flows = it.flows(border, GROUP_SLOTS + 2 * BUDGET)?;
    let (first, flood) = flows.split_at(GROUP_SLOTS + BUDGET);
    it.fill(border, &first[..GROUP_SLOTS], 1)?;
    for frame in &first[GROUP_SLOTS..] {
        border.send(frame)?;
    }
    for frame in flood {
        let measured = border.measure(frame)?;
        if !measured.done.iter().any(|it| it == "Started") {
            // Nor does it have a slot after that.
            border.pass_ticks(1);
            let next = border.measure(frame)?;
            let found = next.done.iter().any(|it| it == "Started");
            let found = found.then_some(measured);
            return found.context("a flow that passed the table by has a slot");
        }
    }
    anyhow::bail!("no flow passes the table by, however many come")
}

/// Flows that meet in the same lines of the table.
#[derive(Clone, Copy)]
struct Meeting {
    frame: Segment,
    line_slots: usize,
}

impl Meeting {
    fn is_v6(&self) -> bool {
        (self.frame)(0)[14] >> 4 == 6
    }

    /// The first packets of `number` flows whose look-up begins in the same line.
    fn flows(&self, border: &Border, number: usize) -> Result<Vec<Vec<u8>>> {
        let first = (self.frame)(0);
        let place = border.place(&first)?;
        let mut flows = vec![first];
        let mut frame = flows[0].clone();
        // By another source address, of which there are enough.
        let source = if self.is_v6() { 14 + 8 + 12 } else { 14 + 12 };
        for address in 1_u32.. {
            if flows.len() == number {
                break;
            }
            frame[source..source + 4].copy_from_slice(&address.to_be_bytes());
            if border.place(&frame)? == place {
                flows.push(frame.clone());
            }
        }
        Ok(flows)
    }

    /// Sends so many packets of each flow, at a time of its own, so that none of them is a flood.
    fn fill(&self, border: &mut Border, flows: &[Vec<u8>], packets: usize) -> Result<()> {
        for frame in flows {
            border.send_times(frame, packets)?;
            border.pass_ticks(1);
        }
        Ok(())
    }
}
