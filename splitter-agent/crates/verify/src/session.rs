//! Putting probes of one path in, and noting where they and their answers pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use splitter_datapath::Injector;
use splitter_policy::flow::Class;

use crate::VerifyError;
use crate::capture::{Capture, Captured};
use crate::frame::{Flow, Kind, LinkAddresses, Part};
use crate::judge::{Answer, Left, Observed};
use crate::survey::{Border, PathPlan};

/// How a probe asks for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// As a packet of the flow that is probed.
    Tcp,
    /// As an echo beside it, with the flow's mark.
    Icmp,
}

impl By {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Icmp => "icmp",
        }
    }
}

/// A flow of probes from an interface of the site to a host of the other one.
pub(crate) struct Session<'a> {
    pub(crate) border: &'a Border,
    pub(crate) plan: &'a PathPlan,
    pub(crate) observed: Observed,
    stop: &'a AtomicBool,
    capture: Capture,
    before: Injector,
    /// By which echoes get the mark of a class that they are not of.
    behind: Option<Injector>,
    tcp: Flow,
    echo: Flow,
    next: u16,
}

/// Where frames seem to come from: nobody, by an address that nobody is given (locally administered).
const NOBODY: [u8; 6] = [0x02, 0, 0, 0, 0, 0];

/// How long a signal waits at most.
const GLANCE: Duration = Duration::from_millis(100);

impl<'a> Session<'a> {
    pub(crate) fn open(
        border: &'a Border,
        plan: &'a PathPlan,
        stop: &'a AtomicBool,
    ) -> Result<Self, VerifyError> {
        let marks = plan.marks.numbers();
        let fwmarks = border.fwmark.map(|bits| (bits, &marks[..]));
        let capture = Capture::open(plan.source, plan.destination, fwmarks);
        let (index, mode) = (plan.lan.index, plan.lan.mode);
        let failed = |source| VerifyError::Inject {
            interface: plan.lan.name.to_string(),
            source,
        };
        let before = Injector::before_program(&border.pins, border.steering, mode, index);
        let behind = Injector::behind_program(mode, index).map_err(failed)?;
        let flow = |kind| Flow {
            source: plan.source,
            destination: plan.destination,
            kind,
        };
        Ok(Self {
            border,
            plan,
            observed: Observed::default(),
            stop,
            capture: capture.map_err(VerifyError::Watch)?,
            before: before.map_err(failed)?,
            behind,
            tcp: flow(tcp(plan.port)),
            echo: flow(Kind::Echo {
                identifier: rand::random(),
            }),
            next: 0,
        })
    }

    /// Goes on with another flow between the same ends.
    pub(crate) fn begin_flow(&mut self) {
        self.tcp.kind = tcp(self.plan.port);
    }

    /// Whether echoes can take the path of the class. Packets that are not split take the short one's.
    pub(crate) fn can_echo(&self) -> bool {
        self.plan.may_echo && (self.plan.class == Class::Short || self.behind.is_some())
    }

    /// Bytes of the shortest probe's headers.
    pub(crate) fn header_bytes(&self, by: By) -> usize {
        self.flow(by).header_bytes()
    }

    /// Puts `count` copies of the next probe in, and returns its number.
    pub(crate) fn send(&mut self, by: By, ip_bytes: usize, count: u32) -> Result<u16, VerifyError> {
        self.check_stop()?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let class = self.plan.class;
        // The program marks what it splits; an echo of the long class passes it by.
        let (injector, mark) = match (by, &self.behind) {
            (By::Icmp, Some(behind)) if class == Class::Long => {
                (behind, self.plan.marks.own(class))
            }
            _ => (&self.before, 0),
        };
        let link = LinkAddresses {
            source: NOBODY,
            destination: self.plan.lan.address,
        };
        let frame = self.flow(by).frame(link, number, mark, ip_bytes);
        let frame =
            frame.ok_or_else(|| self.not_put_in(std::io::ErrorKind::InvalidInput.into()))?;
        let put_in = injector.inject(&frame, count);
        put_in.map_err(|source| self.not_put_in(source))?;
        Ok(number)
    }

    /// Notes what passes until `is_enough`, or until the time is over; whether it was enough.
    pub(crate) fn wait(
        &mut self,
        at_most: Duration,
        is_enough: impl Fn(&Observed) -> bool,
    ) -> Result<bool, VerifyError> {
        let deadline = Instant::now() + at_most;
        loop {
            self.check_stop()?;
            if is_enough(&self.observed) {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            let captured = self.capture.next(deadline.min(now + GLANCE));
            for packet in captured.map_err(VerifyError::Watch)? {
                self.note(&packet);
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), VerifyError> {
        self.wait(time, |_| false).map(drop)
    }

    fn note(&mut self, packet: &Captured) {
        let flows = [self.tcp, self.echo];
        let mut seen = flows.iter().filter_map(|it| it.recognise(&packet.bytes));
        let Some(seen) = seen.next() else {
            return;
        };
        let device = self.border.devices.get(&packet.device);
        let device = device.map_or_else(|| "?".to_owned(), |it| it.name.clone());
        let at = packet.at;
        match (seen.part, packet.is_leaving) {
            // The first device is the one that the route named; what carries that comes after it.
            (Part::Probe, true) => {
                let mark = match self.border.fwmark {
                    Some(_) => packet.fwmark,
                    None => Some(seen.dscp),
                };
                let left = Left { device, mark, at };
                self.observed.left.entry(seen.number).or_insert(left);
            }
            // Coming in it is the other way round, and a tunnel's device the last that matters.
            (Part::Answer, false) => {
                let is_tunnel = self.border.tunnel_devices.contains(&device);
                let answers = &mut self.observed.answers;
                if is_tunnel || !answers.contains_key(&seen.number) {
                    let dscp = seen.dscp;
                    let answer = Answer { device, dscp, at };
                    let first = answers.entry(seen.number).or_insert(answer.clone());
                    if !self.border.tunnel_devices.contains(&first.device) {
                        *first = answer;
                    }
                }
            }
            // As it was put in, or an answer on its way on.
            _ => {}
        }
    }

    fn flow(&self, by: By) -> Flow {
        match by {
            By::Tcp => self.tcp,
            By::Icmp => self.echo,
        }
    }

    fn not_put_in(&self, source: std::io::Error) -> VerifyError {
        VerifyError::Inject {
            interface: self.plan.lan.name.to_string(),
            source,
        }
    }

    fn check_stop(&self) -> Result<(), VerifyError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(VerifyError::Stopped),
            false => Ok(()),
        }
    }
}

/// From a port that no system takes for itself by default (IANA's dynamic ones, above Linux' 60,999).
fn tcp(destination_port: u16) -> Kind {
    Kind::Tcp {
        source_port: rand::random_range(61_000..=65_535),
        destination_port,
    }
}
