//! Packets a second: a program, under traffic, on so many cores.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::generator::{self, AtLeast};
use crate::program::{Router, Yardstick};
use crate::rig::{DESTINATION, ROUTER};
use crate::traffic::{LISTED, Traffic};

/// A row of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    program: &'static str,
    traffic: &'static str,
    cores: u32,
    /// Of one core.
    ns_per_packet: f64,
    /// Of all cores together.
    mpps: f64,
    /// The part of redirected frames for which the kernel's routing was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<f64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            traffic,
            cores,
            ns_per_packet,
            mpps,
            asked,
        } = self;
        write!(
            f,
            "{program:14} {traffic:16} {cores:5} {ns_per_packet:9.1} ns {mpps:8.3} Mpps"
        )?;
        match asked {
            Some(asked) => write!(f, ", {:.2} % asked the kernel's routing", 100.0 * asked),
            None => Ok(()),
        }
    }
}

/// Sent while a slice of a row is measured; the row is the median of so many.
const SLICE: AtLeast = AtLeast {
    duration: Duration::from_millis(120),
    frames: 0,
};
pub(crate) const SLICES: usize = 5;

/// A measured row, or why what was measured is not what it says.
pub(crate) fn measure(
    yardstick: &mut Yardstick,
    router: &Router,
    traffic: Traffic,
    cores: u32,
    slices: usize,
) -> Result<Result<Row, String>> {
    generator::set_template(&mut yardstick.loaded, router.template)?;
    // Once around the list, so that flows are what they will be.
    let warm_up = AtLeast {
        duration: Duration::from_millis(50),
        frames: u64::from(LISTED / cores),
    };
    send(yardstick, router, traffic, cores, warm_up)?;
    let (mut each_ns, mut asked) = (Vec::new(), None);
    for _ in 0..slices {
        let slice = send(yardstick, router, traffic, cores, SLICE)?;
        if let Some(problem) = slice.problem(router, traffic) {
            return Ok(Err(problem));
        }
        let ns = slice.elapsed.as_nanos() as f64 * f64::from(cores);
        each_ns.push(ns / slice.counted.arrived as f64);
        let part = slice.counted.asked_part();
        asked = part.map(|part| asked.unwrap_or(0.0) + part / slices as f64);
    }
    each_ns.sort_by(f64::total_cmp);
    let ns = each_ns[slices / 2];
    Ok(Ok(Row {
        program: router.program.name(),
        traffic: traffic.name(),
        cores,
        ns_per_packet: rounded(ns, 10.0),
        mpps: rounded(1_000.0 * f64::from(cores) / ns, 1_000.0),
        asked: asked.map(|part| rounded(part, 10_000.0)),
    }))
}

/// What became of the frames of a slice.
#[derive(Clone, Copy)]
struct Slice {
    sent: u64,
    counted: Evidence,
    elapsed: Duration,
}

impl Slice {
    fn problem(&self, router: &Router, traffic: Traffic) -> Option<String> {
        self.counted.problem(self.sent, router.program, traffic.mix)
    }
}

fn send(
    yardstick: &mut Yardstick,
    router: &Router,
    traffic: Traffic,
    cores: u32,
    at_least: AtLeast,
) -> Result<Slice> {
    let before = Evidence::read(yardstick, router, traffic.mix, cores)?;
    let program = yardstick.generator(router.program.generator())?;
    let frame = generator::frame(ROUTER, DESTINATION, traffic.size);
    let (from, cancel) = (&router.rig.generator, &yardstick.cancel);
    let sent = generator::send(program, from, &frame, cores, at_least, cancel)?;
    // What is in a ring still has somewhere to go.
    std::thread::sleep(Duration::from_millis(10));
    let after = Evidence::read(yardstick, router, traffic.mix, cores)?;
    Ok(Slice {
        sent: sent.frames,
        counted: after.since(before),
        elapsed: sent.elapsed,
    })
}

pub(crate) fn rounded(value: f64, digits: f64) -> f64 {
    (value * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use flow_testbed::require;
    use flow_testbed::require::Requirement::{Program as Command, Root};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::program::{Program, Sinks};
    use crate::traffic::{self, Mix, Size};

    #[test]
    fn frames_of_every_program_arrive_and_are_what_its_name_says() {
        require!(Root, Command("ip"), Command("ethtool"), Command("nft"));
        let mut yardstick = Yardstick::new(CancellationToken::new()).expect("the objects load");
        let traffic = Traffic::new(Mix::OneFlow, Size::Imix);
        let list = traffic::list(traffic, 1);
        generator::set_list(&mut yardstick.loaded, &list, 1).expect("can be written");
        for program in Program::ALL {
            if let Some(lacking) = program
                .requirements()
                .iter()
                .find_map(|it| it.check().err())
            {
                require::skip(program.name(), &lacking.to_string());
                continue;
            }
            let router = Router::new(program, &mut yardstick, Sinks::Counting);
            let router = router.expect("can be set up");
            generator::set_template(&mut yardstick.loaded, router.template)
                .expect("can be written");
            let some = AtLeast {
                duration: Duration::ZERO,
                frames: 1,
            };
            let mut slice = || send(&mut yardstick, &router, traffic, 1, some).expect("runs");
            // Until the flow is long.
            slice();
            let slice = slice();
            assert_eq!(slice.problem(&router, traffic), None, "{}", program.name());
            assert_eq!(
                slice.counted.treated.is_some(),
                program.counts(),
                "{}",
                program.name()
            );
        }
    }
}
