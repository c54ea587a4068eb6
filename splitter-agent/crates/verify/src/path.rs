//! Probing one path: becoming a flow of the class, then asking for answers, then for longer ones.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use splitter_datapath::LONGEST_FRAME_BYTES;
use splitter_policy::flow::Class;

use crate::VerifyError;
use crate::accept_local::AcceptLocal;
use crate::judge::{ClassReached, Left, judge};
use crate::mtu::MtuSearch;
use crate::report::PathReport;
use crate::session::{By, Session};
use crate::survey::{Border, PathPlan, Threshold};

/// Between the probes of two paths.
pub(crate) const BETWEEN_PATHS: Duration = Duration::from_millis(50);

/// More packets than that are not sent to make a flow long.
const MOST_PACKETS: u64 = 4_096;
/// Of a flow whose bytes are counted.
const FULL_PACKET_BYTES: usize = 1_400;
/// A few, so that `policy = "share"`, which looks at packets with data, counts them.
const PAYLOAD_BYTES: usize = 16;
/// The Ethernet header, which counts in bytes.
const ETHERNET_BYTES: usize = 14;

/// A packet that waits in a full queue leaves by then.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// An answer that takes longer counts as lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Answers are waited for so long at least, once it is known how long they take.
const LEAST_WAIT: Duration = Duration::from_millis(100);
/// Between two probes: more than the gap after which a flow changes tunnels (10 ms), and little enough
/// for an answer of each even where hosts limit how many resets they send.
const SPACING: Duration = Duration::from_millis(25);
/// So many probes without an answer or a trace decide that there is none.
const MISSES: u32 = 3;
/// How often a new flow is tried where flows start in the long tunnel.
const FLOWS_TRIED: u32 = 5;
/// How often a length is tried: a single loss is no limit.
const LENGTH_TRIES: u32 = 2;

/// Probes a path: each of the tunnels that the kernel's hash gives flows of the class to.
pub(crate) fn probe(
    border: &Border,
    plan: &PathPlan,
    stop: &AtomicBool,
) -> Result<Vec<PathReport>, VerifyError> {
    let failed = |source| VerifyError::AcceptLocal {
        interface: plan.lan.name.to_string(),
        source,
    };
    let _accepted = match plan.source {
        IpAddr::V4(_) => Some(AcceptLocal::on(&plan.lan.name).map_err(failed)?),
        IpAddr::V6(_) => None,
    };
    let mut session = Session::open(border, plan, stop)?;
    reach_class(&mut session)?;
    if session.observed.class == ClassReached::Yes {
        measure(&mut session)?;
    }
    let mut reports = vec![judge(border, plan, &session.observed)];
    let intended = plan.marks.intended(plan.class);
    if border.is_shared || session.observed.class != ClassReached::Yes {
        return Ok(reports);
    }
    for _ in 0..flows_for_all(&plan.marks.weights(plan.class)) {
        let is_taken = |device: &String| reports.iter().any(|it| it.taken.contains_key(device));
        if intended.iter().all(is_taken) {
            break;
        }
        let mut session = Session::open(border, plan, stop)?;
        reach_class(&mut session)?;
        let observed = &session.observed;
        if observed.class != ClassReached::Yes {
            reports.push(judge(border, plan, observed));
            break;
        }
        let mut left = observed
            .judged
            .iter()
            .filter_map(|it| observed.left.get(it));
        if left.all(|it| is_taken(&it.device)) {
            continue;
        }
        // Echoes are no packets of this flow, so that their hash is another one.
        if ask(&mut session, By::Tcp)? {
            session.observed.answered_by = Some(By::Tcp.name());
            find_mtu(&mut session, By::Tcp)?;
        }
        reports.push(judge(border, plan, &session.observed));
    }
    Ok(reports)
}

/// How many flows take all tunnels of these weights, but for one time in a million; the most at which
/// one with a very small share is given up.
fn flows_for_all(weights: &[u8]) -> u32 {
    /// A flow takes some 40 ms.
    const MOST_FLOWS: u32 = 500;
    const MISSED: f64 = 1e-6;
    if weights.len() < 2 {
        return 0;
    }
    let sum: f64 = weights.iter().copied().map(f64::from).sum();
    // Tunnels may be missed each by itself (the sum of what is likely is a bound), the lightest most.
    let lightest = weights.iter().copied().min().map_or(0.0, f64::from);
    let flows = (MISSED / weights.len() as f64).ln() / (1.0 - lightest / sum).ln();
    (flows.ceil() as u32).min(MOST_FLOWS)
}

/// Begins a flow that leaves as one of the class.
fn reach_class(session: &mut Session<'_>) -> Result<(), VerifyError> {
    session.observed.class = match session.plan.class {
        Class::Short => start_short(session)?,
        Class::Long => become_long(session)?,
    };
    Ok(())
}

/// Begins flows until one is short where it leaves.
fn start_short(session: &mut Session<'_>) -> Result<ClassReached, VerifyError> {
    let mut seen = 0;
    for _ in 0..FLOWS_TRIED {
        session.begin_flow();
        let Some(left) = send_and_see(session)? else {
            continue;
        };
        seen += 1;
        if is_of_class(session, &left) {
            return Ok(ClassReached::Yes);
        }
        session.observed.judged.clear();
        session.pause(LEAVES_WITHIN / 4)?;
    }
    Ok(match seen {
        0 => ClassReached::NothingLeft(FLOWS_TRIED.into()),
        _ => ClassReached::No(FLOWS_TRIED.into()),
    })
}

/// Sends a flow beyond the threshold, and on until its packets leave as a long flow's.
fn become_long(session: &mut Session<'_>) -> Result<ClassReached, VerifyError> {
    let headers = session.header_bytes(By::Tcp);
    let (packets, ip_bytes) = match session.plan.threshold {
        Threshold::Packets(packets) => (packets + 1, headers + PAYLOAD_BYTES),
        Threshold::Bytes(bytes) => {
            let full = FULL_PACKET_BYTES.min(session.plan.lan.mtu as usize);
            (bytes / (full + ETHERNET_BYTES) as u64 + 1, full)
        }
    };
    if packets > MOST_PACKETS {
        return Ok(ClassReached::TooMany(packets));
    }
    session.send(By::Tcp, ip_bytes, packets as u32)?;
    let deadline = Instant::now() + session.border.max_wait + LEAVES_WITHIN;
    let (mut sent, mut misses) = (packets, 0);
    while Instant::now() < deadline {
        session.pause(SPACING)?;
        sent += 1;
        match send_and_see(session)? {
            Some(left) if is_of_class(session, &left) => return Ok(ClassReached::Yes),
            // On its way to the long tunnel; as a short one's it is not to be judged.
            Some(left) if session.plan.marks.numbered(left.mark).is_some() => {
                misses = 0;
                session.observed.judged.clear();
            }
            Some(_) => misses = 0,
            None => misses += 1,
        }
        if misses == MISSES {
            return Ok(ClassReached::NothingLeft(sent));
        }
    }
    Ok(match session.observed.left.is_empty() {
        true => ClassReached::NothingLeft(sent),
        false => ClassReached::No(sent),
    })
}

/// Sends one packet of the flow and waits until it leaves.
fn send_and_see(session: &mut Session<'_>) -> Result<Option<Left>, VerifyError> {
    let bytes = session.header_bytes(By::Tcp) + PAYLOAD_BYTES;
    let number = session.send(By::Tcp, bytes, 1)?;
    session.wait(LEAVES_WITHIN, |it| it.left.contains_key(&number))?;
    session.observed.judged.push(number);
    Ok(session.observed.left.get(&number).cloned())
}

/// Whether a packet has left as one of the class: by its mark, or without one of ours by a device
/// that the other class has not.
fn is_of_class(session: &Session<'_>, left: &Left) -> bool {
    let (marks, class) = (&session.plan.marks, session.plan.class);
    if let Some(mark) = marks.numbered(left.mark) {
        return mark.class == class;
    }
    let other = match class {
        Class::Short => return true,
        Class::Long => Class::Short,
    };
    marks.intended(class).contains(&left.device) && !marks.intended(other).contains(&left.device)
}

/// Waits for answers: of the flow itself, or of echoes beside it where it gets none.
fn measure(session: &mut Session<'_>) -> Result<(), VerifyError> {
    for by in [By::Tcp, By::Icmp] {
        if by == By::Icmp && !session.can_echo() {
            return Ok(());
        }
        session.observed.asked.clear();
        if ask(session, by)? {
            session.observed.answered_by = Some(by.name());
            return find_mtu(session, by);
        }
    }
    Ok(())
}

/// Asks one after the other; whether anything was answered.
fn ask(session: &mut Session<'_>, by: By) -> Result<bool, VerifyError> {
    let bytes = session.header_bytes(by) + PAYLOAD_BYTES;
    let mut answered = 0;
    for tried in 0..u32::from(session.plan.count) {
        if answered == 0 && tried >= MISSES {
            return Ok(false);
        }
        let number = session.send(by, bytes, 1)?;
        session.observed.asked.push(number);
        session.observed.judged.push(number);
        let patience = patience(session);
        answered += u32::from(session.wait(patience, |it| it.answers.contains_key(&number))?);
        session.pause(SPACING)?;
    }
    Ok(answered > 0)
}

/// How long an answer is waited for: four times the longest so far, within bounds.
fn patience(session: &Session<'_>) -> Duration {
    let observed = &session.observed;
    let delays = observed.asked.iter().filter_map(|it| {
        let (left, answer) = (observed.left.get(it)?, observed.answers.get(it)?);
        answer.at.checked_sub(left.at)
    });
    match delays.max() {
        Some(longest) => (4 * longest).clamp(LEAST_WAIT, ANSWER_WITHIN),
        None => ANSWER_WITHIN,
    }
}

/// Searches the largest packet that is answered.
fn find_mtu(session: &mut Session<'_>, by: By) -> Result<(), VerifyError> {
    let observed = &session.observed;
    let devices = observed.judged.iter().filter_map(|it| {
        let name = &observed.left.get(it)?.device;
        let mut all = session.border.devices.values();
        all.find(|it| it.name == *name)
    });
    let longest = devices
        .map(|it| it.mtu as usize)
        .chain([session.plan.lan.mtu as usize])
        .min()
        .unwrap_or(0)
        .min(LONGEST_FRAME_BYTES - ETHERNET_BYTES);
    let mut search = MtuSearch::new(session.header_bytes(by) + PAYLOAD_BYTES, longest);
    while let Some(length) = search.next() {
        let mut has_passed = false;
        for _ in 0..LENGTH_TRIES {
            if has_passed {
                break;
            }
            let number = session.send(by, length, 1)?;
            let patience = patience(session);
            has_passed = session.wait(patience, |it| it.answers.contains_key(&number))?;
            session.pause(SPACING)?;
        }
        search.note(length, has_passed);
    }
    session.observed.mtu = Some(search.largest() as u64);
    session.observed.mtu_tried = Some(longest as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::flows_for_all;

    #[test]
    fn flows_take_all_tunnels_whatever_their_weights() {
        for weights in [&[1, 1][..], &[3, 1], &[1, 1, 1, 1], &[20, 10, 1]] {
            let sum: f64 = weights.iter().copied().map(f64::from).sum();
            let flows = f64::from(flows_for_all(weights));
            let missed = weights
                .iter()
                .map(|it| (1.0 - f64::from(*it) / sum).powf(flows));
            assert!(missed.sum::<f64>() <= 1e-6, "{weights:?}: {flows} flows");
        }
        assert_eq!(flows_for_all(&[7]), 0);
        assert_eq!(flows_for_all(&[255, 1]), 500);
    }
}
