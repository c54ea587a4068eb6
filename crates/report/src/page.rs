//! One HTML file with everything in it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Bars, Claims, Plot, Table, colours::COLOURS};

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
p.alarm { border: 3px solid var(--alarm, #c00000); color: var(--alarm, #c00000); padding: .7rem; font-weight: 600; }
@media (prefers-color-scheme: dark) { p.alarm { --alarm: #ff7b7b; } }
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

    /// Adds a paragraph in red with a frame, which nobody overlooks.
    pub fn alarm(self, text: &str) -> Self {
        self.part(html! { p.alarm role="alert" { (text) } })
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

    /// Adds bars in SVG.
    pub fn bars(self, bars: &Bars) -> Self {
        self.part(html! { figure { (bars.to_markup()) } })
    }

    /// Adds claims in SVG.
    pub fn claims(self, claims: &Claims) -> Self {
        self.part(html! { figure { (claims.to_markup()) } })
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
            .bars(&Bars::new("bars"))
            .table(&Table::new(["head"]))
            .to_html();
        assert!(page.contains("<title>A &amp; B</title>") && page.contains("1 &lt; 2"));
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!without_namespace.contains(outside), "{outside}");
        }
    }
}
