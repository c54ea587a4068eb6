//! Plots of lines over time and single values, in Pikchr, whose inches have 144 pixels.

use std::fmt::Write as _;

use anyhow::Result;

use crate::dashboard::Panel;

/// Distance of columns, height of a row of single values, and of a line of text.
pub const COLUMN: f64 = 2.36;
/// Height of a row of single values.
pub const STAT: f64 = 0.42;
const LINE: f64 = 0.14;
/// Left of a plot are its numbers.
const LEFT: f64 = 0.66;
const WIDTH: f64 = 1.55;
const HEIGHT: f64 = 0.62;

/// Colours of lines, in the order of a panel's; those of classes are kept for them.
const COLOURS: [&str; 6] = ["short", "long", "good", "note", "rule", "bad"];

/// Height of a row of plots of which the most crowded has so many lines.
pub fn height(series: usize) -> f64 {
    LINE * 3.2 + HEIGHT + LINE * series as f64 + 0.12
}

/// Describes a panel of the newest value, below and right of a corner.
///
/// # Errors
/// None so far but those of formatting.
pub fn stat(text: &mut String, panel: &Panel, (x, y): (f64, f64)) -> Result<()> {
    writeln!(text, "text {:?} ljust at ({x:.3}, {y:.3})", panel.title)?;
    let newest = panel.series.iter().map(|series| {
        let value = series.values.iter().rev().find(|it| it.is_finite());
        value.map_or("-".to_owned(), |value| quantity(*value, &panel.unit))
    });
    let newest: Vec<String> = newest.collect();
    let below = y - LINE * 1.2;
    writeln!(
        text,
        "text {:?} bold ljust color $short at ({x:.3}, {below:.3})",
        newest.join("  ")
    )?;
    Ok(())
}

/// Describes a panel of lines over `seconds`, below and right of a corner.
///
/// # Errors
/// None so far but those of formatting.
pub fn lines(text: &mut String, panel: &Panel, seconds: u32, (x, y): (f64, f64)) -> Result<()> {
    writeln!(
        text,
        "text {:?} bold ljust at ({x:.3}, {y:.3})",
        panel.title
    )?;
    let (left, top) = (x + LEFT, y - LINE * 1.1);
    let (right, bottom) = (left + WIDTH, top - HEIGHT);
    let values = panel.series.iter().flat_map(|series| &series.values);
    let highest = values
        .copied()
        .filter(|it| it.is_finite())
        .fold(0.0, f64::max);
    let highest = round_up(highest);
    for (at, value) in [(top, highest), (bottom, 0.0)] {
        writeln!(
            text,
            "line color $rule thickness 0.006 from ({left:.3}, {at:.3}) to ({right:.3}, {at:.3})"
        )?;
        let beside = left - 0.05;
        let value = quantity(value, &panel.unit);
        writeln!(
            text,
            "text {value:?} rjust color $note at ({beside:.3}, {at:.3})"
        )?;
    }
    let ago = format!("{} min ago", seconds / 60);
    let below = bottom - LINE * 0.75;
    writeln!(
        text,
        "text {ago:?} ljust color $note at ({left:.3}, {below:.3})"
    )?;
    writeln!(
        text,
        "text \"now\" rjust color $note at ({right:.3}, {below:.3})"
    )?;
    let colours = colours(panel);
    for (number, (series, colour)) in panel.series.iter().zip(colours).enumerate() {
        let points = series.values.len().saturating_sub(1).max(1) as f64;
        let place = |(point, value): (usize, &f64)| {
            let along = left + WIDTH * point as f64 / points;
            let above = bottom + HEIGHT * (value / highest).clamp(0.0, 1.0);
            value
                .is_finite()
                .then(|| format!("({along:.3}, {above:.3})"))
        };
        let places: Vec<Option<String>> = series.values.iter().enumerate().map(place).collect();
        // Where there was no value the line has a gap.
        for part in places
            .split(|it| it.is_none())
            .filter(|part| part.len() > 1)
        {
            let part: Vec<&str> = part.iter().flatten().map(|it| &**it).collect();
            writeln!(
                text,
                "line color ${colour} thickness 0.012 from {}",
                part.join(" then to ")
            )?;
        }
        let legend = below - LINE * (number as f64 + 1.0);
        writeln!(
            text,
            "text {:?} ljust color ${colour} at ({left:.3}, {legend:.3})",
            series.name
        )?;
    }
    Ok(())
}

/// A colour for each line: the first about a class has that class' own, others the next that is free.
fn colours(panel: &Panel) -> Vec<&'static str> {
    let mut chosen: Vec<Option<&str>> = vec![None; panel.series.len()];
    for class in ["short", "long"] {
        let mut names = panel.series.iter().map(|it| &it.name);
        let begins = names.position(|name| name.starts_with(class));
        let mut names = panel.series.iter().map(|it| &it.name);
        let first = begins.or_else(|| names.position(|name| name.ends_with(class)));
        if let Some(first) = first {
            chosen[first] = Some(class);
        }
    }
    for number in 0..chosen.len() {
        let mut free = COLOURS.iter().filter(|it| !chosen.contains(&Some(**it)));
        let next = chosen[number].or(free.next().copied());
        chosen[number] = next.or(Some(COLOURS[number % COLOURS.len()]));
    }
    chosen.into_iter().flatten().collect()
}

/// The next number that has one digit, or two of which the second is a five.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10.0_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let fits = steps.iter().find(|step| *step * power >= value * 0.999_999);
    fits.unwrap_or(&10.0) * power
}

/// Writes a value with a unit of Grafana's as people do.
fn quantity(value: f64, unit: &str) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let step = steps.iter().find(|(step, _)| value.abs() >= *step);
        let (step, name) = step.or(steps.last()).copied().unwrap_or((1.0, ""));
        format!("{} {name}", digits(value / step))
    };
    let written = match unit {
        _ if value == 0.0 => "0".to_owned(),
        "bps" => scaled(&[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")]),
        "s" => scaled(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]),
        "bytes" => scaled(&[(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]),
        "percentunit" => format!("{} %", digits(value * 100.0)),
        "cps" | "pps" => format!("{} /s", digits(value)),
        _ => scaled(&[(1e6, "M"), (1e3, "k"), (1.0, "")]),
    };
    written.trim_end().to_owned()
}

/// At most three digits that say something.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        it if it >= 100.0 => 0,
        it if it >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_with_the_unit_that_suits() {
        for (value, unit, expected) in [
            (12_340_000.0, "bps", "12.3 Mbit/s"),
            (0.0451, "s", "45.1 ms"),
            (0.07, "percentunit", "7 %"),
            (60.0, "short", "60"),
            (1_200.0, "short", "1.2 k"),
            (0.0, "bps", "0"),
            (2.5, "cps", "2.5 /s"),
        ] {
            assert_eq!(quantity(value, unit), expected);
        }
    }

    #[test]
    fn classes_have_their_own_colours() {
        let names = [
            "long in the long tunnel",
            "long in the short",
            "short in the short tunnel",
            "x",
        ];
        let series = names.map(|name| crate::dashboard::Series {
            name: name.to_owned(),
            values: Vec::new(),
        });
        let panel = Panel {
            title: String::new(),
            unit: String::new(),
            is_stat: false,
            series: series.into(),
        };
        assert_eq!(colours(&panel), ["long", "good", "short", "note"]);
    }

    #[test]
    fn axes_end_at_round_numbers_above_all_values() {
        for (value, expected) in [
            (0.0, 1.0),
            (60e6, 60e6),
            (61e6, 80e6),
            (0.011, 0.015),
            (9.5, 10.0),
        ] {
            let rounded = round_up(value);
            assert!(
                (rounded / expected - 1.0).abs() < 1e-9,
                "{value}: {rounded}"
            );
        }
    }
}
