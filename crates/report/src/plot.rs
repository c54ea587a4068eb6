//! Line and point plots as SVG.
//!
//! The SVG is written by hand so that its text stays text and its colours stay variables of the
//! page; a drawing library would fix both.

use maud::{Markup, PreEscaped, html};

use crate::{
    colours::{COLOURS, PALETTE},
    scale::{Kind, Scale, Tick},
};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 52.0;
/// Height of title and legend.
const TOP: f64 = 64.0;
/// Width of a letter of the legend, about.
const LETTER: f64 = 7.2;
/// From one line of the legend to the next; two fit.
const LEGEND_LINE: f64 = 14.0;

/// One axis: its label, unit included, and how it maps values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    kind: Kind,
    range: Option<(f64, f64)>,
}

/// A named set of points in one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Line,
    Steps,
    Points,
}

/// A plot; series take the palette's colours in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Axis {
    /// An axis from zero (or the lowest negative value) to the highest value.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            kind: Kind::Linear,
            range: None,
        }
    }

    /// An axis of equal ratios; values that are not positive are not shown.
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            kind: Kind::Log,
            range: None,
        }
    }

    /// Shows exactly this range.
    pub fn range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }
}

impl Series {
    /// Points joined by straight lines, but for a gap where a value is no number.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            style: Style::Line,
        }
    }

    /// Points joined by steps: each value holds until the next point.
    pub fn steps(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            style: Style::Steps,
        }
    }

    /// Points that are not joined.
    pub fn points(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            style: Style::Points,
        }
    }
}

impl Plot {
    /// A plot without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
        }
    }

    /// Adds a series of points.
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// An SVG element for a page that has the [style sheet](crate::STYLE_SHEET) of plots.
    pub fn to_element(&self) -> String {
        self.draw(None).into_string()
    }

    /// An SVG file of its own, with its colours for light and dark.
    pub fn to_svg(&self) -> String {
        self.draw(Some(COLOURS)).into_string()
    }

    pub(crate) fn to_markup(&self) -> Markup {
        self.draw(None)
    }

    fn draw(&self, style: Option<&str>) -> Markup {
        let area = Area::new(self);
        html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {HEIGHT}"))
                role="img" aria-label=(self.title) font-family="system-ui, sans-serif" font-size="12" {
                @if let Some(style) = style { style { (PreEscaped(style)) } }
                rect class="ground" width=(WIDTH) height=(HEIGHT) {}
                text class="ink" x=(LEFT) y="22" font-size="15" font-weight="600" { (self.title) }
                (self.legend())
                (area.grid(self))
                @for (index, series) in self.series.iter().enumerate() {
                    (area.series(series, index % PALETTE))
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        let (mut x, mut y) = (LEFT, 38.0);
        let entries: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| {
                let width = 34.0 + series.name.chars().count() as f64 * LETTER;
                if x > LEFT && x + width > WIDTH - RIGHT {
                    (x, y) = (LEFT, y + LEGEND_LINE);
                }
                let at = x;
                x += width;
                (at, y, index % PALETTE, series.name.as_str())
            })
            .collect();
        html! {
            @for (x, y, colour, name) in entries {
                rect class=(format!("fill{colour}")) x=(x) y=(y) width="14" height="4" rx="2" {}
                text class="ink" x=(x + 20.0) y=(y + 7.0) { (name) }
            }
        }
    }
}

/// The part of the picture inside the axes.
struct Area {
    x: Scale,
    y: Scale,
}

impl Area {
    fn new(plot: &Plot) -> Self {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        Self {
            x: Scale::fit(plot.x.kind, points().map(|it| it.0), plot.x.range),
            y: Scale::fit(plot.y.kind, points().map(|it| it.1), plot.y.range),
        }
    }

    fn left(&self, value: f64) -> Option<f64> {
        Some(LEFT + self.x.position(value)? * (WIDTH - LEFT - RIGHT))
    }

    fn top(&self, value: f64) -> Option<f64> {
        Some(HEIGHT - BOTTOM - self.y.position(value)? * (HEIGHT - TOP - BOTTOM))
    }

    fn grid(&self, plot: &Plot) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let middle = (TOP + bottom) / 2.0;
        let class = |tick: &Tick| {
            if tick.label.is_some() {
                "grid"
            } else {
                "grid faint"
            }
        };
        html! {
            @for tick in self.x.ticks() { @if let Some(x) = self.left(tick.value) {
                line class=(class(&tick)) x1=(x) x2=(x) y1=(TOP) y2=(bottom) {}
                @if let Some(label) = tick.label {
                    text class="dim" x=(x) y=(bottom + 18.0) text-anchor="middle" { (label) }
                }
            } }
            @for tick in self.y.ticks() { @if let Some(y) = self.top(tick.value) {
                line class=(class(&tick)) x1=(LEFT) x2=(right) y1=(y) y2=(y) {}
                @if let Some(label) = tick.label {
                    text class="dim" x=(LEFT - 8.0) y=(y + 4.0) text-anchor="end" { (label) }
                }
            } }
            line class="axis" x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
            line class="axis" x1=(LEFT) x2=(LEFT) y1=(TOP) y2=(bottom) {}
            text class="ink" x=((LEFT + right) / 2.0) y=(HEIGHT - 12.0) text-anchor="middle" {
                (plot.x.label)
            }
            text class="ink" text-anchor="middle" transform=(format!("translate(16 {middle}) rotate(-90)")) {
                (plot.y.label)
            }
        }
    }

    fn series(&self, series: &Series, colour: usize) -> Markup {
        let runs = series.points.split(|(_, y)| y.is_nan()).map(|run| {
            let points = run.iter();
            let placed = points.filter_map(|&(x, y)| Some((self.left(x)?, self.top(y)?)));
            placed.collect::<Vec<(f64, f64)>>()
        });
        html! {
            @match series.style {
                Style::Points => g class=(format!("fill{colour}")) {
                    @for (x, y) in runs.flatten() {
                        circle cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="1.6" {}
                    }
                },
                style => path class=(format!("stroke{colour}"))
                    d=(runs.map(|run| path(&run, style)).collect::<String>()) {},
            }
        }
    }
}

fn path(points: &[(f64, f64)], style: Style) -> String {
    let mut path = String::new();
    if let [(x, y)] = points {
        // A line of one point would not be seen.
        return format!("M{x:.1} {y:.1}h1");
    }
    for (index, (x, y)) in points.iter().enumerate() {
        path += &match (index, style) {
            (0, _) => format!("M{x:.1} {y:.1}"),
            (_, Style::Steps) => format!("H{x:.1}V{y:.1}"),
            _ => format!("L{x:.1} {y:.1}"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        Plot::new(
            "FCT <short>",
            Axis::log("ms"),
            Axis::linear("share").range(0.0, 1.0),
        )
        .with(Series::steps("split", vec![(1.0, 0.5), (10.0, 1.0)]))
        .with(Series::points("ecmp", vec![(2.0, 0.1), (0.0, 0.2)]))
    }

    #[test]
    fn holds_title_axes_legend_and_data() {
        let svg = plot().to_svg();
        for part in [
            "FCT &lt;short&gt;",
            ">ms<",
            ">share<",
            ">split<",
            ">ecmp<",
            "stroke0",
            "fill1",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        assert_eq!(
            svg.matches("<circle").count(),
            1,
            "0 has no place on a logarithmic axis"
        );
        assert!(svg.contains("prefers-color-scheme"));
    }

    #[test]
    fn steps_hold_their_value_until_the_next_one() {
        let points = [(0.0, 1.0), (2.0, 5.0)];
        assert_eq!(path(&points, Style::Steps), "M0.0 1.0H2.0V5.0");
        assert_eq!(path(&points, Style::Line), "M0.0 1.0L2.0 5.0");
    }

    #[test]
    fn legend_that_is_too_wide_goes_on_in_another_line() {
        let names = ["a", "b"].map(|it| it.repeat(60));
        let plot = names.iter().fold(plot(), |plot, name| {
            plot.with(Series::line(name.clone(), Vec::new()))
        });
        let legend = plot.legend().into_string();
        for line in [38.0, 38.0 + LEGEND_LINE] {
            let swatches = format!("y=\"{line}\" width=\"14\"");
            assert!(legend.contains(&swatches), "{line}: {legend}");
        }
    }

    #[test]
    fn stays_inside_its_frame() {
        let wide = Plot::new(
            "t",
            Axis::linear("x").range(0.0, 1.0),
            Axis::linear("y").range(0.0, 1.0),
        )
        .with(Series::line("s", vec![(-5.0, 0.0), (0.5, 7.0)]));
        assert!(
            wide.to_svg().contains(&format!("M{LEFT:.1}")),
            "clamped to the left edge"
        );
    }

    #[test]
    fn line_has_a_gap_where_a_value_is_no_number_and_a_point_alone_is_seen() {
        let values = [1.0, 2.0, f64::NAN, f64::NAN, 3.0, f64::NAN].into_iter();
        let points = (0..).map(f64::from).zip(values).collect();
        let plot =
            Plot::new("t", Axis::linear("x"), Axis::linear("y")).with(Series::line("s", points));
        let svg = plot.to_element();
        let (_, path) = svg.split_once("<path").unwrap();
        assert_eq!(
            (path.matches('M').count(), path.matches('L').count()),
            (2, 1)
        );
        assert!(path.contains("h1") && !svg.contains("NaN"), "{svg}");
        assert!(!svg.contains("<style"), "that is the page's");
    }

    #[test]
    fn nothing_to_show_is_still_a_picture() {
        assert!(
            Plot::new("t", Axis::log("x"), Axis::linear("y"))
                .to_svg()
                .ends_with("</svg>")
        );
    }
}
