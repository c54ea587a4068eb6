//! Claims held against measurements, as SVG: for each its band, the value that was stated and the one
//! that was measured, with its interval.

use maud::{Markup, PreEscaped, html};

use crate::{Estimate, colours::COLOURS};

const WIDTH: f64 = 760.0;
/// Height of title and legend.
const TOP: f64 = 62.0;
const ROW: f64 = 46.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = 8.0;
/// Room for the numbers at both ends of a row's scale.
const ENDS: f64 = 64.0;
const BAND: f64 = 12.0;
/// Letters of a claim that fit beside its value.
const NAME: usize = 88;

/// One claim, in a unit of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Quantity that is compared.
    pub name: String,
    /// Lowest and highest value that agree with it; an end that is not finite is open.
    pub band: (f64, f64),
    /// Value that was stated, if it was one.
    pub stated: Option<f64>,
    /// Value that was measured.
    pub measured: Option<Estimate>,
    /// That value, as text.
    pub text: String,
}

/// A picture of claims, one below the other, each with a scale of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    title: String,
    rows: Vec<Claim>,
}

impl Claims {
    /// A picture of these claims.
    pub fn new(title: impl Into<String>, rows: Vec<Claim>) -> Self {
        Self {
            title: title.into(),
            rows,
        }
    }

    /// An SVG file of its own, with its colours for light and dark.
    pub fn to_svg(&self) -> String {
        self.draw(Some(COLOURS)).into_string()
    }

    pub(crate) fn to_markup(&self) -> Markup {
        self.draw(None)
    }

    fn draw(&self, style: Option<&str>) -> Markup {
        let height = TOP + self.rows.len() as f64 * ROW;
        html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
                role="img" aria-label=(self.title) font-family="system-ui, sans-serif" font-size="12" {
                @if let Some(style) = style { style { (PreEscaped(style)) } }
                rect class="ground" width=(WIDTH) height=(height) {}
                text class="ink" x=(LEFT) y="22" font-size="15" font-weight="600" { (self.title) }
                (legend())
                @for (index, row) in self.rows.iter().enumerate() {
                    (row.draw(TOP + index as f64 * ROW))
                }
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        rect class="fill3" x=(LEFT) y="36" width="18" height="8" opacity="0.35" {}
        text class="ink" x=(LEFT + 24.0) y="45" { "agrees with the paper" }
        path class="fill2" d=(diamond(LEFT + 170.0, 40.0)) {}
        text class="ink" x=(LEFT + 180.0) y="45" { "the paper's value" }
        circle class="fill0" cx=(LEFT + 300.0) cy="40" r="4" {}
        path class="stroke0" d=(format!("M{} 40h24", LEFT + 288.0)) {}
        text class="ink" x=(LEFT + 320.0) y="45" { "ours, with its 95 % confidence interval" }
    }
}

impl Claim {
    fn draw(&self, top: f64) -> Markup {
        let (low, high) = self.range();
        let at = |value: f64| {
            let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
            LEFT + ENDS + share * (WIDTH - LEFT - RIGHT - 2.0 * ENDS)
        };
        let middle = top + 24.0;
        let (from, to) = (at(self.band.0), at(self.band.1));
        let interval = self.measured.map(|it| {
            let half = it.half_width.unwrap_or(0.0);
            (at(it.mean), at(it.mean - half), at(it.mean + half))
        });
        html! {
            text class="ink" x=(LEFT) y=(top + 10.0) { (shortened(&self.name)) }
            text class="ink" x=(WIDTH - RIGHT) y=(top + 10.0) text-anchor="end" font-weight="600" { (self.text) }
            line class="grid" x1=(LEFT + ENDS) x2=(WIDTH - RIGHT - ENDS) y1=(middle) y2=(middle) {}
            text class="dim" x=(LEFT + ENDS - 6.0) y=(middle + 4.0) text-anchor="end" { (significant(low)) }
            text class="dim" x=(WIDTH - RIGHT - ENDS + 6.0) y=(middle + 4.0) { (significant(high)) }
            @if from.is_finite() && to.is_finite() {
                rect class="fill3" x=(one(from)) y=(middle - BAND / 2.0) height=(BAND) opacity="0.35"
                    width=(one((to - from).max(2.0))) {}
            }
            @if let Some(stated) = self.stated {
                path class="fill2" d=(diamond(at(stated), middle)) {}
            }
            @if let Some((mean, from, to)) = interval {
                path class="stroke0" d=(format!("M{} {middle}H{}", one(from), one(to))) {}
                circle class="fill0" cx=(one(mean)) cy=(middle) r="4" {}
            }
        }
    }

    /// From the lowest to the highest of all that is to be seen, and a little more.
    fn range(&self) -> (f64, f64) {
        let measured = self.measured.into_iter().flat_map(|it| {
            let half = it.half_width.unwrap_or(0.0);
            [it.mean - half, it.mean + half]
        });
        let shown = [self.band.0, self.band.1].into_iter().chain(self.stated);
        let shown = shown.chain(measured).filter(|it| it.is_finite());
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |range, value| {
            (range.0.min(value), range.1.max(value))
        });
        if low > high {
            return (0.0, 1.0);
        }
        let more = if high > low {
            0.08 * (high - low)
        } else {
            0.1 * low.abs().max(1.0)
        };
        // What cannot be negative does not look as if it could.
        let least = if low < 0.0 { f64::NEG_INFINITY } else { 0.0 };
        ((low - more).max(least), high + more)
    }
}

fn diamond(x: f64, y: f64) -> String {
    format!("M{x:.1} {}l5 5l-5 5l-5 -5z", y - 5.0)
}

fn one(value: f64) -> String {
    format!("{value:.1}")
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

/// About three digits.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        it if it >= 100.0 => 0,
        it if it >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(band: (f64, f64), stated: Option<f64>, mean: f64) -> Claim {
        Claim {
            name: "TR <against> LetFlow".to_owned(),
            band,
            stated,
            measured: Some(Estimate {
                mean,
                half_width: Some(1.0),
                runs: 3,
            }),
            text: format!("{mean:.1} %"),
        }
    }

    /// The number behind `what` at its `nth` place.
    fn number(svg: &str, what: &str, nth: usize) -> f64 {
        let rest = svg.split(what).nth(nth + 1).unwrap_or_default();
        let text: String = rest
            .chars()
            .take_while(|it| it.is_ascii_digit() || *it == '.')
            .collect();
        text.parse().unwrap_or(f64::NAN)
    }

    #[test]
    fn band_statement_and_measurement_lie_on_one_scale() {
        let svg = Claims::new("T10", vec![claim((-45.0, -10.0), Some(-20.0), -30.0)]).to_svg();
        assert!(svg.contains("TR &lt;against&gt; LetFlow") && svg.contains("-30.0 %"));
        assert!(svg.contains("prefers-color-scheme"));
        // The first of each is the legend's.
        let (from, width) = (
            number(&svg, "fill3\" x=\"", 1),
            number(&svg, "opacity=\"0.35\" width=\"", 0),
        );
        let mean = number(&svg, "cx=\"", 1);
        assert!(
            ((mean - from) / width - 15.0 / 35.0).abs() < 0.01,
            "{from} {width} {mean}"
        );
        let stated = number(&svg, "fill2\" d=\"M", 1);
        assert!(
            ((stated - from) / width - 25.0 / 35.0).abs() < 0.01,
            "{stated}"
        );
    }

    #[test]
    fn open_bands_and_claims_without_numbers_are_drawn() {
        let open = claim((1.0, f64::INFINITY), None, 2.0);
        let (_, high) = open.range();
        assert!(high > 3.0 && high.is_finite());
        let none = Claim {
            measured: None,
            ..claim((f64::NAN, f64::NAN), None, 0.0)
        };
        let svg = Claims::new("t", vec![open, none]).to_svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "legend and one");
    }

    #[test]
    fn interval_reaches_as_far_to_both_sides_of_the_mean() {
        let svg = Claims::new("t", vec![claim((0.0, 9.0), None, 5.0)]).to_svg();
        // The first of each is the legend's.
        let (from, mean) = (number(&svg, "stroke0\" d=\"M", 1), number(&svg, "cx=\"", 1));
        let path = svg.split("stroke0\" d=\"M").nth(2).unwrap_or_default();
        let to = number(path, "H", 0);
        assert!(from < mean && to > mean, "{from} {mean} {to}");
        assert!(
            (mean - from - (to - mean)).abs() < 0.3,
            "{from} {mean} {to}"
        );
    }

    #[test]
    fn what_cannot_be_negative_begins_at_nothing_at_the_least() {
        assert_eq!(claim((0.5, 40.0), None, 2.0).range().0, 0.0);
        assert!(claim((-0.5, 40.0), None, 2.0).range().0 < -0.5);
    }

    #[test]
    fn long_names_end_in_an_ellipsis_and_numbers_have_three_digits() {
        let short = shortened(&"x".repeat(NAME));
        assert_eq!(short.chars().count(), NAME);
        assert!(!short.contains('…'));
        let long = shortened(&"x".repeat(NAME + 1));
        assert_eq!(long.chars().count(), NAME);
        assert!(long.ends_with("x…"), "{long}");
        let written = [1.234, 12.34, 123.4, -12.34].map(significant);
        assert_eq!(written, ["1.23", "12.3", "123", "-12.3"]);
    }

    #[test]
    fn one_value_alone_has_a_range() {
        let exact = Claim {
            measured: None,
            stated: Some(3.0),
            ..claim((3.0, 3.0), None, 0.0)
        };
        let (low, high) = exact.range();
        assert!(low < 3.0 && high > 3.0, "{low} {high}");
    }
}
