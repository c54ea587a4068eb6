//! Horizontal bars as SVG: a few things side by side, which need no legend to be read.

use maud::{Markup, html};

use crate::colours::PALETTE;

const WIDTH: f64 = 760.0;
/// Height of title and headings.
const TOP: f64 = 58.0;
const ROW: f64 = 42.0;
const BAR: f64 = 20.0;
/// Width of names and what they mean.
const NAMES: f64 = 250.0;
/// Between panels.
const GAP: f64 = 16.0;
/// Width of a value behind its bar.
const VALUE: f64 = 76.0;

/// Bars for a few things, in one or more panels with a scale of their own; rows take the palette's
/// colours in their order, as the series of a [`Plot`](crate::Plot) do.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    title: String,
    rows: Vec<(String, String)>,
    panels: Vec<Panel>,
}

#[derive(Clone, Debug, PartialEq)]
struct Panel {
    heading: String,
    unit: String,
    values: Vec<f64>,
}

impl Bars {
    /// A picture without bars.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
            panels: Vec::new(),
        }
    }

    /// Adds a thing: its name, and below it in small print what it means.
    pub fn row(mut self, name: impl Into<String>, meaning: impl Into<String>) -> Self {
        self.rows.push((name.into(), meaning.into()));
        self
    }

    /// Adds a panel with a bar for each row, in their order. A value that is not finite has no bar.
    pub fn panel(
        mut self,
        heading: impl Into<String>,
        unit: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        self.panels.push(Panel {
            heading: heading.into(),
            unit: unit.into(),
            values: values.into_iter().collect(),
        });
        self
    }

    pub(crate) fn to_markup(&self) -> Markup {
        let height = TOP + self.rows.len() as f64 * ROW + GAP;
        let width = (WIDTH - NAMES) / self.panels.len().max(1) as f64;
        html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
                role="img" aria-label=(self.title) font-family="system-ui, sans-serif" font-size="12" {
                rect class="ground" width=(WIDTH) height=(height) {}
                text class="ink" x="0" y="22" font-size="15" font-weight="600" { (self.title) }
                @for (index, (name, meaning)) in self.rows.iter().enumerate() {
                    text class="ink" x="0" y=(top(index) + 12.0) font-weight="600" { (name) }
                    text class="dim" x="0" y=(top(index) + 27.0) font-size="11" { (meaning) }
                }
                @for (index, panel) in self.panels.iter().enumerate() {
                    (panel.draw(NAMES + index as f64 * width, width - GAP))
                }
            }
        }
    }
}

impl Panel {
    fn draw(&self, left: f64, width: f64) -> Markup {
        let finite = self.values.iter().filter(|it| it.is_finite());
        let most = finite.fold(0.0_f64, |most, value| most.max(*value));
        let length = |value: f64| (width - VALUE) * if most > 0.0 { value / most } else { 0.0 };
        html! {
            text class="ink" x=(left) y="44" { (self.heading) }
            @for (index, value) in self.values.iter().enumerate() {
                @if value.is_finite() {
                    rect class=(format!("fill{}", index % PALETTE)) x=(left) y=(top(index)) rx="2"
                        width=(format!("{:.1}", length(*value).max(1.0))) height=(BAR) {}
                    text class="ink" x=(format!("{:.1}", left + length(*value) + 6.0)) y=(top(index) + 14.0) {
                        (significant(*value)) " " (self.unit)
                    }
                } @else {
                    text class="dim" x=(left) y=(top(index) + 14.0) { "nothing measured" }
                }
            }
        }
    }
}

fn top(row: usize) -> f64 {
    TOP + row as f64 * ROW
}

/// About three digits: more would not be repeated by a second measurement.
fn significant(value: f64) -> String {
    let digits = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars() -> String {
        let bars = Bars::new("Mean <time>")
            .row("ECMP", "by a hash")
            .row("split", "by length")
            .panel("short", "ms", [24.68, 3.417])
            .panel("long", "ms", [253.4, f64::NAN]);
        bars.to_markup().into_string()
    }

    #[test]
    fn each_bar_stands_beside_its_name_and_value() {
        let svg = bars();
        for part in [
            "Mean &lt;time&gt;",
            ">ECMP<",
            ">by a hash<",
            ">24.7 ms<",
            ">3.42 ms<",
            ">253 ms<",
            ">nothing measured<",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let svg = bars();
        let widths: Vec<f64> = svg
            .split("height=\"20\"")
            .filter_map(|before| before.rsplit_once("width=\"")?.1.split('"').next())
            .filter_map(|it| it.parse().ok())
            .collect();
        let [one, other, long, ..] = widths[..] else {
            panic!("three bars: {svg}");
        };
        assert!((other / one - 3.417 / 24.68).abs() < 0.01, "{widths:?}");
        assert_eq!(one, long, "each panel's longest fills it");
    }
}
