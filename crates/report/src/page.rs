//! One HTML file with everything in it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Plot, Table};

/// Colours of plots and pages, for light and for dark. The palette is Okabe and Ito's, which
/// readers with colour vision deficiencies can tell apart, darkened or lightened for contrast.
/// Programs that know no variables, as most that convert SVG, take the plain colours in front.
pub(crate) const COLOURS: &str = "
:root { --ground: #ffffff; --ink: #1d2430; --dim: #5b6472; --grid: #d9dee6; --faint: #eef1f5;
  --c0: #c44e00; --c1: #b07d00; --c2: #0072b2; --c3: #008a63; --c4: #b0508f; --c5: #3a8fc4; --c6: #6b6b00; --c7: #444444; --c8: #7a4fd0; --c9: #a03030; --c10: #1f7a1f; --c11: #8a5a2b; }
@media (prefers-color-scheme: dark) {
:root { --ground: #14181f; --ink: #e6e9ee; --dim: #a3acb9; --grid: #343c48; --faint: #222831;
  --c0: #ff8a4c; --c1: #f0b93a; --c2: #56b4e9; --c3: #2fd0a0; --c4: #e59ac8; --c5: #8fc7f0; --c6: #d9d94a; --c7: #bbbbbb; --c8: #b39bff; --c9: #ff7b7b; --c10: #8fe08f; --c11: #d0a070; } }
.ground { fill: #ffffff; fill: var(--ground); }
.ink { fill: #1d2430; fill: var(--ink); }
.dim { fill: #5b6472; fill: var(--dim); }
.grid { stroke: #d9dee6; stroke: var(--grid); }
.faint { stroke: #eef1f5; stroke: var(--faint); }
.axis { stroke: #5b6472; stroke: var(--dim); }
.fill0 { fill: #c44e00; fill: var(--c0); }
.fill1 { fill: #b07d00; fill: var(--c1); }
.fill2 { fill: #0072b2; fill: var(--c2); }
.fill3 { fill: #008a63; fill: var(--c3); }
.fill4 { fill: #b0508f; fill: var(--c4); }
.fill5 { fill: #3a8fc4; fill: var(--c5); }
.fill6 { fill: #6b6b00; fill: var(--c6); }
.fill7 { fill: #444444; fill: var(--c7); }
.fill8 { fill: #7a4fd0; fill: var(--c8); }
.fill9 { fill: #a03030; fill: var(--c9); }
.fill10 { fill: #1f7a1f; fill: var(--c10); }
.fill11 { fill: #8a5a2b; fill: var(--c11); }
.stroke0, .stroke1, .stroke2, .stroke3, .stroke4, .stroke5, .stroke6, .stroke7, .stroke8, .stroke9, .stroke10, .stroke11 {
  fill: none; stroke-width: 2; stroke-linejoin: round; }
.stroke0 { stroke: #c44e00; stroke: var(--c0); }
.stroke1 { stroke: #b07d00; stroke: var(--c1); }
.stroke2 { stroke: #0072b2; stroke: var(--c2); }
.stroke3 { stroke: #008a63; stroke: var(--c3); }
.stroke4 { stroke: #b0508f; stroke: var(--c4); }
.stroke5 { stroke: #3a8fc4; stroke: var(--c5); }
.stroke6 { stroke: #6b6b00; stroke: var(--c6); }
.stroke7 { stroke: #444444; stroke: var(--c7); }
.stroke8 { stroke: #7a4fd0; stroke: var(--c8); }
.stroke9 { stroke: #a03030; stroke: var(--c9); }
.stroke10 { stroke: #1f7a1f; stroke: var(--c10); }
.stroke11 { stroke: #8a5a2b; stroke: var(--c11); }
";

const LAYOUT: &str = "
:root { color-scheme: light dark; }
body { margin: 2rem auto; padding: 0 1rem; max-width: 60rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; }
thead th { color: var(--dim); font-weight: 600; } th:first-child { text-align: left; }
figure { margin: 1.5rem 0; } .plot { width: 100%; height: auto; }
.note { color: var(--dim); font-size: .9rem; }
";

/// A page under construction: parts appear in the order in which they are added.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    parts: Vec<Markup>,
}

impl Page {
    /// A page with its title alone.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            parts: Vec::new(),
        }
    }

    /// Adds the heading of a section.
    pub fn heading(self, text: &str) -> Self {
        self.part(html! { h2 { (text) } })
    }

    /// Adds a paragraph of text.
    pub fn text(self, text: &str) -> Self {
        self.part(html! { p { (text) } })
    }

    /// Adds a paragraph in small print.
    pub fn note(self, text: &str) -> Self {
        self.part(html! { p.note { (text) } })
    }

    /// Adds a list of items.
    pub fn list<T: AsRef<str>>(self, items: impl IntoIterator<Item = T>) -> Self {
        let items: Vec<T> = items.into_iter().collect();
        self.part(html! { ul { @for item in &items { li { (item.as_ref()) } } } })
    }

    /// Adds a table of figures.
    pub fn table(self, table: &Table) -> Self {
        self.part(table.to_markup())
    }

    /// Adds a plot in SVG.
    pub fn plot(self, plot: &Plot) -> Self {
        self.part(html! { figure { (plot.to_markup()) } })
    }

    /// The whole file. It refers to nothing outside of itself.
    pub fn to_html(&self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(COLOURS)) (PreEscaped(LAYOUT)) }
                }
                body {
                    h1 { (self.title) }
                    @for part in &self.parts { (part) }
                }
            }
        }
        .into_string()
    }

    fn part(mut self, part: Markup) -> Self {
        self.parts.push(part);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    #[test]
    fn refers_to_nothing_outside() {
        let page = Page::new("A & B")
            .heading("Part")
            .text("1 < 2")
            .note("small")
            .list(["one", "two"])
            .plot(&Plot::new("plot", Axis::linear("x"), Axis::linear("y")))
            .table(&Table::new(["head"]))
            .to_html();
        assert!(page.contains("<title>A &amp; B</title>") && page.contains("1 &lt; 2"));
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!without_namespace.contains(outside), "{outside}");
        }
    }
}
