//! Drawings: from a description in [Pikchr](https://pikchr.org) to an SVG that follows the reader's light or
//! dark theme, and laws about how it looks.
//!
//! Descriptions name colours by what they mean (`$short`, `$long`, `$soft`, ...). An SVG has them as
//! variables of its own style sheet, on a ground of its own, so that it can be read on any page.

use anyhow::{Result, anyhow};
use pikchr::{Pikchr, PikchrFlags};
use roxmltree::{Document, Node};

/// Names of colours, and what they are in light and in dark. Pikchr is given their place in this list.
const COLOURS: [(&str, &str, &str); 12] = [
    ("ink", "#1c2530", "#e4e8ee"),
    ("short", "#1766b8", "#74b9ff"),
    ("shortfill", "#dbeafa", "#16324e"),
    ("long", "#b4520a", "#f5a860"),
    ("longfill", "#fbe6d3", "#4a2b10"),
    ("soft", "#eef1f5", "#262b34"),
    ("rule", "#8791a0", "#7f8a9a"),
    ("good", "#1d7a3c", "#70d18d"),
    ("goodfill", "#dcf2e2", "#173a24"),
    ("bad", "#b3261e", "#ff8f86"),
    ("badfill", "#fbdfdd", "#4c1d1a"),
    ("note", "#55606e", "#a9b3c0"),
];

/// Grounds in light and in dark.
const GROUND: (&str, &str) = ("#ffffff", "#15181e");

/// Around the drawing, in pixels.
const MARGIN: f64 = 10.0;

/// Size of letters, in pixels; `small` has four fifths of it.
const LETTERS: f64 = 16.0;
const SMALL: f64 = 0.8;

/// Width of a telephone's page, and the least height of letters that is read there, in pixels.
const NARROW: f64 = 400.0;
const LEAST_LETTERS: f64 = 9.0;

/// Draws an SVG from a description in Pikchr.
///
/// # Errors
/// What Pikchr says about a description that it does not understand.
pub fn draw(title: &str, description: &str) -> Result<String> {
    let mut source = String::new();
    for (number, (name, ..)) in COLOURS.iter().enumerate() {
        source.push_str(&format!("${name} = {number}\n"));
    }
    // Letters of most readers are wider than Pikchr takes them for.
    source.push_str("charwid = 0.085in\n");
    source.push_str(description);
    let drawn = Pikchr::render(&source, None, PikchrFlags::default())
        .map_err(|error| anyhow!("{error}"))?;
    themed(title, &drawn.to_string())
}

/// Takes colours out of an SVG of Pikchr and puts a style sheet in.
fn themed(title: &str, drawn: &str) -> Result<String> {
    let document = Document::parse(drawn)?;
    let View {
        left,
        top,
        width,
        height,
    } = View::of_all(&document);
    let inside = drawn.find('>').map_or(0, |at| at + 1);
    let mut body = drawn[inside..].trim().to_owned();
    for (number, (name, ..)) in COLOURS.iter().enumerate() {
        body = body.replace(&format!("rgb(0,0,{number})"), &format!("var(--{name})"));
    }
    // Only in a style do variables hold for all who draw.
    let body = body.replace("fill=\"var(--", "style=\"fill:var(--");
    let body = body.replace("><", ">\n<");
    let sheet = |colour: fn(&(&str, &'static str, &'static str)) -> &'static str| -> String {
        let each = COLOURS
            .iter()
            .map(|it| format!("--{}:{}", it.0, colour(it)));
        each.collect::<Vec<_>>().join(";")
    };
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"{left} {top} {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>\n\
         :root{{--ground:{};{}}}\n\
         @media(prefers-color-scheme:dark){{:root{{--ground:{};{}}}}}\n\
         svg{{font-family:Helvetica,Arial,\"Liberation Sans\",sans-serif;font-size:{LETTERS}px}}\n\
         </style>\n\
         <rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\" style=\"fill:var(--ground)\"/>\n\
         {}\n",
        escaped(title),
        GROUND.0,
        sheet(|it| it.1),
        GROUND.1,
        sheet(|it| it.2),
        body.trim(),
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// What a reader sees of a drawing, in whole pixels.
struct View {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl View {
    fn read(document: &Document) -> Option<Self> {
        let view = document.root_element().attribute("viewBox")?;
        let numbers: Vec<f64> = view.split(' ').filter_map(|it| it.parse().ok()).collect();
        let &[left, top, width, height] = &numbers[..] else {
            return None;
        };
        Some(Self {
            left,
            top,
            width,
            height,
        })
    }

    /// All that is drawn, with a margin. Pikchr's own leaves room to both sides of a text that has one.
    fn of_all(document: &Document) -> Self {
        let mut corners = Vec::new();
        for node in document.descendants() {
            let number = |name| node.attribute(name).and_then(|it| it.parse::<f64>().ok());
            if let Some(text) = Text::read(node) {
                corners.extend([(text.left, text.top), (text.right, text.bottom)]);
            }
            if let (Some(x), Some(y), Some(r)) = (number("cx"), number("cy"), number("r")) {
                corners.extend([(x - r, y - r), (x + r, y + r)]);
            }
            corners.extend(
                segments(&node)
                    .into_iter()
                    .flat_map(|(from, to)| [from, to]),
            );
        }
        let least = |of: fn(&(f64, f64)) -> f64| corners.iter().map(of).fold(f64::MAX, f64::min);
        let most = |of: fn(&(f64, f64)) -> f64| corners.iter().map(of).fold(f64::MIN, f64::max);
        let (left, top) = (
            (least(|it| it.0) - MARGIN).floor(),
            (least(|it| it.1) - MARGIN).floor(),
        );
        Self {
            left,
            top,
            width: (most(|it| it.0) + MARGIN - left).ceil(),
            height: (most(|it| it.1) + MARGIN - top).ceil(),
        }
    }
}

/// Finds what cannot be read in a drawing: letters too small for a telephone, texts that cover one another
/// or are crossed by a line.
///
/// # Errors
/// When it is no SVG.
pub fn faults(svg: &str) -> Result<Vec<String>> {
    let document = Document::parse(svg)?;
    let view = View::read(&document).ok_or_else(|| anyhow!("the drawing has no size"))?;
    let texts: Vec<Text> = document.descendants().filter_map(Text::read).collect();
    let mut faults = Vec::new();
    let is_path = |node: &Node| node.has_tag_name("path");
    let paths = document.descendants().filter(is_path);
    let strokes: Vec<_> = paths
        .filter(is_drawn)
        .flat_map(|it| segments(&it))
        .collect();
    for (number, text) in texts.iter().enumerate() {
        let letters = text.letters * NARROW / view.width.max(NARROW);
        if letters < LEAST_LETTERS {
            faults.push(format!(
                "{:?} has letters of {letters:.1} px at {NARROW} px",
                text.content
            ));
        }
        if let Some(other) = texts[..number].iter().find(|other| text.covers(other)) {
            faults.push(format!("{:?} covers {:?}", text.content, other.content));
        }
        if strokes.iter().any(|stroke| text.is_crossed_by(stroke)) {
            faults.push(format!("a line crosses {:?}", text.content));
        }
    }
    Ok(faults)
}

/// A line that nobody sees crosses nothing.
fn is_drawn(path: &Node) -> bool {
    path.attribute("style")
        .is_some_and(|it| it.contains("stroke:var"))
}

/// Text with the rectangle that it takes, in pixels.
#[derive(Debug)]
struct Text {
    content: String,
    letters: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Text {
    fn read(node: Node) -> Option<Self> {
        if !node.has_tag_name("text") {
            return None;
        }
        let number = |name| node.attribute(name).and_then(|it| it.parse::<f64>().ok());
        let (x, y) = (number("x")?, number("y")?);
        let content = node.text().unwrap_or_default().replace('\u{a0}', " ");
        let small = node
            .attribute("font-size")
            .is_some_and(|it| it.starts_with("80"));
        let letters = if small { SMALL * LETTERS } else { LETTERS };
        let weight = if node.attribute("font-weight").is_some() {
            BOLD
        } else {
            1.0
        };
        let width = content.chars().map(width).sum::<f64>() * letters * weight;
        let left = match node.attribute("text-anchor") {
            Some("start") => x,
            Some("end") => x - width,
            _ => x - width / 2.0,
        };
        // Letters without what goes below the line.
        Some(Self {
            content,
            letters,
            left,
            right: left + width,
            top: y - 0.36 * letters,
            bottom: y + 0.36 * letters,
        })
    }

    fn covers(&self, other: &Text) -> bool {
        let beside = self.right <= other.left || other.right <= self.left;
        let apart = self.bottom <= other.top || other.bottom <= self.top;
        !beside && !apart
    }

    fn is_crossed_by(&self, ((x0, y0), (x1, y1)): &((f64, f64), (f64, f64))) -> bool {
        // By Liang and Barsky: the part of the line that is inside all four edges.
        let (dx, dy) = (x1 - x0, y1 - y0);
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        let edges = [
            (-dx, x0 - self.left),
            (dx, self.right - x0),
            (-dy, y0 - self.top),
            (dy, self.bottom - y0),
        ];
        for (direction, distance) in edges {
            if direction == 0.0 {
                if distance <= 0.0 {
                    return false;
                }
            } else if direction < 0.0 {
                from = from.max(distance / direction);
            } else {
                to = to.min(distance / direction);
            }
        }
        from < to
    }
}

/// Width of a letter in heights, as in DejaVu Sans: the widest that a reader without others has.
fn width(letter: char) -> f64 {
    match letter {
        'i' | 'l' | 'j' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' | ' ' => 0.32,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.4,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
        'A'..='Z' => 0.72,
        _ => 0.62,
    }
}

/// Bold letters are wider by so much.
const BOLD: f64 = 1.12;

/// Straight pieces of a path; those of a curve lead by its corners.
fn segments(path: &Node) -> Vec<((f64, f64), (f64, f64))> {
    let data = path.attribute("d").unwrap_or_default();
    let mut segments = Vec::new();
    let (mut start, mut last) = ((0.0, 0.0), (0.0, 0.0));
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..]
            .find(|it: char| it.is_ascii_alphabetic())
            .map_or(rest.len(), |at| at + 1);
        let numbers = rest[1..end]
            .split([',', ' '])
            .filter_map(|it| it.parse::<f64>().ok());
        let numbers: Vec<f64> = numbers.collect();
        rest = &rest[end..];
        // Of an arc the end alone: five numbers before it say how it bends.
        let skipped = if command == 'A' { 5 } else { 0 };
        let points = numbers.get(skipped..).unwrap_or_default().chunks_exact(2);
        for point in points.map(|it| (it[0], it[1])) {
            if command == 'M' {
                start = point;
            } else {
                segments.push((last, point));
            }
            last = point;
        }
        if command == 'Z' {
            segments.push((last, start));
            last = start;
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(description: &str) -> Vec<String> {
        faults(&draw("a", description).unwrap()).unwrap()
    }

    #[test]
    fn colours_follow_the_theme() {
        let svg = draw("A & B", r#"box "x" fill $shortfill color $short"#).unwrap();
        assert!(
            svg.contains("fill:var(--shortfill)") && svg.contains("stroke:var(--short)"),
            "{svg}"
        );
        assert!(
            svg.contains("prefers-color-scheme:dark") && svg.contains("A &amp; B"),
            "{svg}"
        );
        assert!(!svg.contains("rgb("), "{svg}");
    }

    #[test]
    fn what_cannot_be_read_is_found() {
        assert_eq!(of(r#"box "fits" fit; arrow; box "too" fit"#), [""; 0]);
        let crossed = of(r#"box "much too long for this box""#);
        assert_eq!(crossed, ["a line crosses \"much too long for this box\""]);
        let covered = of(r#"text "one"; text "two" at last text.e"#);
        assert_eq!(covered, ["\"two\" covers \"one\""]);
        let small = of(r#"box "a" fit; move 6in; box "b" fit"#);
        assert!(
            small.len() == 2 && small[0].contains("letters of"),
            "{small:?}"
        );
    }

    #[test]
    fn what_pikchr_does_not_know_is_an_error() {
        assert!(draw("a", "bax \"x\"").is_err());
    }
}
