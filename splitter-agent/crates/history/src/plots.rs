//! The last hour as plots.

use flow_report::{Axis, Plot, Series};

use crate::samples::{ClassSample, Samples, TunnelSample};

/// Lines in one plot, beyond which nobody can tell them apart.
const MOST_LINES: usize = 8;

const MEGA: f64 = 1e6;

impl Samples {
    /// Draws the samples: rates of classes and tunnels, flows, and delay and backlog where these are
    /// known. A plot of which nothing is known is left out.
    #[must_use]
    pub fn plots(&self, now_ms: u64) -> Vec<Plot> {
        let minutes: Vec<f64> = self.times_s(now_ms).iter().map(|it| it / 60.0).collect();
        let plots = [
            self.of_classes(&minutes, "From the site, by class", "Mbit/s", |it| {
                mbit(it.bits_per_s)
            }),
            self.of_classes(&minutes, "Flows", "flows", |it| Some(f64::from(it.flows))),
            self.of_tunnels(&minutes, "Sent by tunnel", "Mbit/s", |it| {
                mbit(it.sent_bits_per_s)
            }),
            self.of_tunnels(&minutes, "Received by tunnel", "Mbit/s", |it| {
                mbit(it.received_bits_per_s)
            }),
            self.of_tunnels(&minutes, "Round trip by tunnel", "ms", |it| {
                Some(f64::from(it.rtt_s?) * 1e3)
            }),
            self.of_tunnels(&minutes, "Waiting in front of the tunnel", "kB", |it| {
                Some(f64::from(it.backlog_bytes?) / 1e3)
            }),
        ];
        plots.into_iter().flatten().collect()
    }

    fn of_classes(
        &self,
        minutes: &[f64],
        title: &str,
        unit: &str,
        figure: fn(&ClassSample) -> Option<f64>,
    ) -> Option<Plot> {
        let named = ["short", "long"].into_iter().zip(&self.classes);
        let lines = named.map(|(name, row)| {
            let values = row.iter().map(figure);
            (name.to_owned(), line(minutes, values))
        });
        plot(title, unit, minutes, lines.collect())
    }

    fn of_tunnels(
        &self,
        minutes: &[f64],
        title: &str,
        unit: &str,
        figure: fn(&TunnelSample) -> Option<f64>,
    ) -> Option<Plot> {
        let lines = self.tunnels.iter().map(|(name, row)| {
            let values = row.iter().map(|it| figure(it.as_ref()?));
            let site = name
                .site
                .as_ref()
                .map_or_else(String::new, |it| format!("{it} "));
            let name = format!("{site}{} {}", name.tunnel, name.device);
            (name, line(minutes, values))
        });
        plot(title, unit, minutes, lines.collect())
    }
}

fn mbit(bits_per_s: Option<f32>) -> Option<f64> {
    Some(f64::from(bits_per_s?) / MEGA)
}

/// Points of a line; what is not known is a gap.
fn line(minutes: &[f64], values: impl Iterator<Item = Option<f64>>) -> Vec<(f64, f64)> {
    let values = values.map(|it| it.unwrap_or(f64::NAN));
    minutes.iter().copied().zip(values).collect()
}

/// Minutes that the axis of time has, in steps in which it grows: what an agent knows that has just
/// begun would be a speck in an hour.
fn span(minutes: &[f64]) -> f64 {
    const STEP: f64 = 10.0;
    const HOUR: f64 = 60.0;
    let oldest = minutes.first().map_or(0.0, |it| -it);
    ((oldest / STEP).ceil() * STEP).clamp(STEP, HOUR)
}

fn plot(
    title: &str,
    unit: &str,
    minutes: &[f64],
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> Option<Plot> {
    let is_known = |line: &[(f64, f64)]| line.iter().any(|(_, value)| value.is_finite());
    let known: Vec<_> = lines
        .into_iter()
        .filter(|(_, line)| is_known(line))
        .collect();
    if known.is_empty() {
        return None;
    }
    let title = match known.len().saturating_sub(MOST_LINES) {
        0 => title.to_owned(),
        more => format!("{title} (and {more} more in history.json)"),
    };
    let time = Axis::linear("minutes").range(-span(minutes), 0.0);
    let plot = Plot::new(title, time, Axis::linear(unit));
    let lines = known.into_iter().take(MOST_LINES);
    Some(lines.fold(plot, |plot, (name, line)| {
        plot.with(Series::line(name, line))
    }))
}

#[cfg(test)]
mod tests {
    use crate::samples::{SPACING, TunnelName};

    use super::*;

    const SPACING_MS: u64 = SPACING.as_millis() as u64;

    fn tunnel(number: u32, rtt_s: Option<f32>) -> (TunnelName, TunnelSample) {
        let name = TunnelName {
            site: (number > 1).then(|| format!("site{number}")),
            tunnel: "long",
            device: format!("wan{number}"),
        };
        let sample = TunnelSample {
            sent_bits_per_s: Some(20e6),
            rtt_s,
            ..TunnelSample::default()
        };
        (name, sample)
    }

    #[test]
    fn what_is_known_is_drawn_and_the_rest_is_left_out() {
        let mut samples = Samples::default();
        assert!(
            samples
                .plots(0)
                .iter()
                .all(|it| !it.to_svg().contains("NaN"))
        );
        for step in 0..3 {
            let rtt = (step != 1).then_some(0.004);
            let classes = [ClassSample {
                flows: 7.0,
                ..ClassSample::default()
            }; 2];
            samples.add(step * SPACING_MS, classes, [tunnel(1, rtt)]);
        }
        let drawn = samples.plots(2 * SPACING_MS);
        let svgs: Vec<String> = drawn.iter().map(Plot::to_svg).collect();
        let of = |title: &str| svgs.iter().find(|it| it.contains(title));
        for title in ["Flows", "Sent by tunnel", "Round trip by tunnel"] {
            let svg = of(title).unwrap_or_else(|| panic!("no {title}"));
            assert!(!svg.contains("NaN"), "{svg}");
        }
        assert!(of("Sent by tunnel").unwrap().contains("long wan1"));
        for title in ["From the site", "Received", "Waiting"] {
            assert!(of(title).is_none(), "{title}");
        }
        // The second round trip is not known: the line has a gap there.
        let lines = |title: &str| {
            let svg = of(title).unwrap();
            let (_, path) = svg.split_once("<path").expect("a line");
            path.split_once("/path>")
                .expect("it ends")
                .0
                .matches('M')
                .count()
        };
        assert_eq!((lines("Round trip"), lines("Sent by")), (2, 1));
    }

    #[test]
    fn axis_of_time_grows_with_what_is_known_up_to_an_hour() {
        let mut samples = Samples::default();
        let mut starts = Vec::new();
        for step in 0..400 {
            samples.add(step * SPACING_MS, Default::default(), [tunnel(1, None)]);
            let start = span(
                &samples
                    .times_s(step * SPACING_MS)
                    .iter()
                    .map(|it| it / 60.0)
                    .collect::<Vec<_>>(),
            );
            if starts.last() != Some(&start) {
                starts.push(start);
            }
        }
        assert_eq!(starts, [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let drawn = |now_ms| {
            let mut samples = Samples::default();
            for at_ms in [0, now_ms] {
                samples.add(at_ms, Default::default(), [tunnel(1, None)]);
            }
            samples.plots(now_ms)[0].to_svg()
        };
        assert!(drawn(60_000).contains(">-10<"), "{}", drawn(60_000));
        assert!(drawn(3_500_000).contains(">-60<"));
    }

    #[test]
    fn many_tunnels_are_cut_and_it_says_so() {
        let mut samples = Samples::default();
        samples.add(
            0,
            Default::default(),
            (0..20).map(|number| tunnel(number, None)),
        );
        let drawn = samples.plots(0);
        let sent = drawn
            .iter()
            .map(Plot::to_svg)
            .find(|it| it.contains("Sent"));
        let sent = sent.expect("it is known");
        assert!(sent.contains("and 12 more"), "{sent}");
        assert!(sent.contains("site7 long wan7") && !sent.contains("wan8"));
    }
}
