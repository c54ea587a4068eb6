//! What is measured in each scenario, between namespaces.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    incast,
    rig::{Flow, Rig, Running, SERVER, goodput, loss},
};
use crate::{
    cell::{Cell, Scenario},
    random::Random,
    scenario::{Figures, figures, jain, percentile},
};

const OURS: u16 = 4433;
const CUBIC: u16 = 5201;
const SHORT: u16 = 7000;
const SECONDS: u64 = 15;
const SENDERS: u16 = 20;
/// How long each rate of a link lasts that falls and is back.
const PHASE: Duration = Duration::from_secs(8);
/// Until a spell of loss begins, and how long it is.
const CALM: Duration = Duration::from_secs(5);
const SPELL: Duration = Duration::from_secs(10);
/// What has arrived when a sender is back.
const BACK_BYTES: u64 = 3_000;
/// Short flows: bytes of each, and their share of the link.
const SHORT_BYTES: usize = 20_000;
const SHORT_SHARE: f64 = 0.1;

/// A scenario with the command, or cubic in its place.
pub(super) struct Run<'a> {
    cell: &'a Cell,
    rig: &'a Rig,
    program: Option<&'a Path>,
}

impl<'a> Run<'a> {
    pub(super) fn new(cell: &'a Cell, rig: &'a Rig, program: Option<&'a Path>) -> Self {
        Self { cell, rig, program }
    }

    pub(super) fn measure(&self) -> Result<Figures> {
        match self.cell.scenario {
            Scenario::Alone => self.alone(),
            Scenario::Cubic | Scenario::Shared => self.beside_cubic(1.2, "100k"),
            Scenario::Messages => self.beside_cubic(0.2, "39k"),
            Scenario::Twenty => self.twenty(),
            Scenario::Drop => self.drop(),
            Scenario::Silent => self.spell(Duration::ZERO, 10),
            Scenario::Loss90 => self.spell(CALM, 9),
            Scenario::Blackout => self.spell(CALM, 10),
            Scenario::Short => self.short(),
            Scenario::Marked | Scenario::Ecn => {
                bail!("a queue that marks is measured in virtual time alone")
            }
            Scenario::Incast => incast::measure(self.rig, self.is_ours()),
        }
    }

    fn is_ours(&self) -> bool {
        self.program.is_some()
    }

    /// What is measured, with messages of 100 kB for more than the link.
    fn flow(&self) -> Flow<'a> {
        Flow {
            program: self.program,
            port: if self.is_ours() {
                OURS
            } else {
                CUBIC + SENDERS
            },
            size: "100k",
            bits_per_s: 1.2 * self.rig.bits_per_s,
            paths: 0,
        }
    }

    /// Starts what is measured, for so long; it is killed where it is not waited for.
    fn start(&self, seconds: u64) -> Result<(Running, Running)> {
        let flow = self.flow();
        let server = self.rig.listen(flow.program, flow.port)?;
        Ok((server, self.rig.send(&flow, seconds)?))
    }

    fn alone(&self) -> Result<Figures> {
        let began = Instant::now();
        let (_server, mut sender) = self.start(SECONDS)?;
        let settled = Duration::from_nanos(self.cell.settling(1, 12));
        thread::sleep(settled.saturating_sub(began.elapsed()));
        let early = self.rig.counts()?;
        let rate = goodput(&mut sender, self.is_ours())?;
        Ok(figures([
            ("early_loss", loss((0.0, 0.0), early)),
            ("loss", loss(early, self.rig.counts()?)),
            ("goodput", rate / self.rig.bits_per_s),
        ]))
    }

    fn beside_cubic(&self, load: f64, size: &'static str) -> Result<Figures> {
        let is_shared = self.cell.scenario == Scenario::Shared;
        let flow = Flow {
            size,
            bits_per_s: load * self.rig.bits_per_s,
            paths: if is_shared { 2 } else { 0 },
            ..self.flow()
        };
        let cubic = Flow {
            program: None,
            port: CUBIC,
            bits_per_s: f64::INFINITY,
            ..flow
        };
        let _servers = (
            self.rig.listen(flow.program, flow.port)?,
            self.rig.listen(None, CUBIC)?,
        );
        let mut first = self.rig.send(&flow, SECONDS)?;
        let mut second = self.rig.send(&cubic, SECONDS)?;
        let first = goodput(&mut first, self.is_ours())?;
        let second = goodput(&mut second, false)?;
        Ok(figures([
            ("share", first / self.rig.bits_per_s),
            ("cubic", second / self.rig.bits_per_s),
        ]))
    }

    fn twenty(&self) -> Result<Figures> {
        let flow = Flow {
            bits_per_s: self.rig.bits_per_s / 4.0,
            ..self.flow()
        };
        let flow_of = |number: u16| Flow {
            port: if self.is_ours() { OURS } else { CUBIC + number },
            bits_per_s: if self.is_ours() {
                flow.bits_per_s
            } else {
                f64::INFINITY
            },
            ..flow
        };
        let listeners = if self.is_ours() { 1 } else { SENDERS };
        let servers = (0..listeners).map(|it| self.rig.listen(self.program, flow_of(it).port));
        let _servers = servers.collect::<Result<Vec<_>>>()?;
        let senders = (0..SENDERS).map(|it| self.rig.send(&flow_of(it), SECONDS));
        let mut senders = senders.collect::<Result<Vec<_>>>()?;
        thread::sleep(Duration::from_secs(SECONDS / 3));
        let settled = self.rig.counts()?;
        let rates = senders.iter_mut().map(|it| goodput(it, self.is_ours()));
        let rates = rates.collect::<Result<Vec<_>>>()?;
        Ok(figures([
            ("jain", jain(&rates)),
            ("loss", loss(settled, self.rig.counts()?)),
            ("through", rates.iter().sum::<f64>() / self.rig.bits_per_s),
        ]))
    }

    fn drop(&self) -> Result<Figures> {
        let (_server, _sender) = self.start(3 * PHASE.as_secs() + 10)?;
        thread::sleep(PHASE);
        self.rig.set_rate(self.rig.bits_per_s / 10.0)?;
        let settling = Duration::from_nanos(self.cell.settling(1, 12));
        thread::sleep(settling);
        let settled = self.rig.counts()?;
        thread::sleep(PHASE - settling);
        let low = loss(settled, self.rig.counts()?);
        self.rig.set_rate(self.rig.bits_per_s)?;
        thread::sleep(Duration::from_nanos(self.cell.settling(2, 20)));
        let (began, (_, before)) = (Instant::now(), self.rig.bytes()?);
        thread::sleep(Duration::from_secs(2));
        let (_, after) = self.rig.bytes()?;
        let rate = (after - before) as f64 * 8.0 / began.elapsed().as_secs_f64();
        Ok(figures([
            ("loss", low),
            ("back", rate / self.rig.bits_per_s),
        ]))
    }

    /// So many of ten packets are lost from a time on, for ten seconds.
    fn spell(&self, calm: Duration, of_ten: u32) -> Result<Figures> {
        if calm.is_zero() {
            self.rig.lose(of_ten)?;
        }
        let (_server, _sender) = self.start((calm + SPELL).as_secs() + 15)?;
        if !calm.is_zero() {
            thread::sleep(calm);
            self.rig.lose(of_ten)?;
        }
        let began = Instant::now();
        let sent_in = |second: u32| -> Result<f64> {
            thread::sleep((Duration::from_secs(1) * second).saturating_sub(began.elapsed()));
            let (before, _) = self.rig.bytes()?;
            thread::sleep(Duration::from_secs(1));
            Ok((self.rig.bytes()?.0 - before) as f64)
        };
        let mut list = figures([
            ("first_second_bytes", sent_in(0)?),
            ("tenth_second_bytes", sent_in(9)?),
        ]);
        self.rig.lose_nothing()?;
        let (over, (_, before)) = (Instant::now(), self.rig.bytes()?);
        while self.rig.bytes()?.1 < before + BACK_BYTES && over.elapsed() < SPELL {
            thread::sleep(Duration::from_millis(5));
        }
        list.insert("recovery_ms".into(), over.elapsed().as_secs_f64() * 1e3);
        Ok(list)
    }

    /// Short TCP flows beside a backlog.
    fn short(&self) -> Result<Figures> {
        let (_server, _sender) = self.start(SECONDS + 5)?;
        self.rig.server.spawn(answer_short_flows)?;
        let gap = SHORT_BYTES as f64 * 8.0 / (self.rig.bits_per_s * SHORT_SHARE);
        let (mut random, began) = (Random::new(5), Instant::now());
        let (mut at, mut flows) = (1.0, Vec::new());
        while at < SECONDS as f64 {
            at += random.exponential() * gap;
            thread::sleep(Duration::from_secs_f64(at).saturating_sub(began.elapsed()));
            flows.push(self.rig.client.spawn(short_flow)?);
        }
        let mut times = Vec::new();
        for flow in flows {
            if let Ok(time) = flow.join() {
                times.push(time??.as_secs_f64() * 1e3);
            }
        }
        Ok(figures([
            ("p50_ms", percentile(times.clone(), 0.5)),
            ("p99_ms", percentile(times, 0.99)),
        ]))
    }
}

/// Answers each flow with a byte when all of it is there, for as long as the namespace lasts.
fn answer_short_flows() -> Option<()> {
    let listener = TcpListener::bind(("0.0.0.0", SHORT)).ok()?;
    loop {
        let (mut stream, _) = listener.accept().ok()?;
        thread::spawn(move || {
            let mut bytes = [0; SHORT_BYTES];
            let all = stream.read_exact(&mut bytes);
            all.and_then(|()| stream.write_all(&[1]))
        });
    }
}

fn short_flow() -> Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect((SERVER, SHORT)).context("a short flow cannot connect")?;
    stream.write_all(&[0; SHORT_BYTES])?;
    stream.read_exact(&mut [0])?;
    Ok(began.elapsed())
}
