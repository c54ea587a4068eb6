//! The page as HTML, with the rows that are known when it is asked for.

use std::sync::LazyLock;

use flow_report::{Plot, STYLE_SHEET};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::{Field, Layout, StatusTable};

const STYLE: &str = include_str!("status.css");
const SCRIPT: &str = include_str!("status.js");

/// SHA-256 of the plots' style sheet with [`STYLE`], and of [`SCRIPT`], in base64, the one hash that
/// browsers know. A test computes them, so that no program carries a second hash for two texts that
/// never change.
const STYLE_DIGEST: &str = "GPS/X23sj0FsGaSbe4znnSOc1H0RykZqyaO0BmXkPo4=";
const SCRIPT_DIGEST: &str = "d9tVWQqgJ7ksAPwPzrTKJGDLTjs1ApcDYc6C8wjHGmQ=";

/// Content security policy: allows the page's own style and script, by their digests, and requests to
/// the endpoint; nothing else, from nowhere else.
pub(crate) static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src 'sha256-{SCRIPT_DIGEST}'; style-src 'sha256-{STYLE_DIGEST}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The whole page. Where the status could not be read it says so, and the script tries again.
pub(crate) fn document(layout: &Layout, status: &Result<Value, String>, plots: &[Plot]) -> String {
    let empty = Value::Null;
    let (values, problem) = match status {
        Ok(values) => (values, ""),
        Err(problem) => (&empty, problem.as_str()),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (layout.title) }
                // Else browsers ask for /favicon.ico.
                link rel="icon" href="data:,";
                // Where both have a variable, the page's own holds.
                style { (PreEscaped(STYLE_SHEET)) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (layout.title) }
                    (readiness(values))
                    p.note { (layout.about) }
                    p.controls {
                        button #pause type="button" hidden { "Pause" }
                        " "
                        span #updated { }
                        noscript { "Without JavaScript this page stands still: load it again for new figures." }
                    }
                    p #problem role="alert" { (problem) }
                }
                main {
                    @if !layout.facts.is_empty() { dl { @for fact in layout.facts { (fact_markup(fact, values)) } } }
                    (plots_markup(plots))
                    @for table in layout.tables { (table_markup(table, values)) }
                }
                footer {
                    p.note {
                        "Also here: "
                        a href="status.json" { "these figures as JSON" } ", "
                        @for (path, name) in layout.documents {
                            a href=(path.trim_start_matches('/')) { (name) } ", "
                        }
                        a href="metrics" { "metrics for Prometheus" } ", "
                        a href="live" { "liveness" } " and "
                        a href="ready" { "readiness" } "."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// The script takes this part of a new page, and puts it in the place of the old one.
fn plots_markup(plots: &[Plot]) -> Markup {
    html! {
        @if !plots.is_empty() {
            section #plots aria-labelledby="heading-plots" {
                h2 #heading-plots { "The last hour" }
                div.plots { @for plot in plots { figure { (PreEscaped(plot.to_element())) } } }
            }
        }
    }
}

fn readiness(values: &Value) -> Markup {
    let ready = values["ready"].as_bool();
    let degraded = values["degraded"].as_bool();
    let words = values["readiness"].as_str().unwrap_or_default();
    html! {
        p #readiness data-ready=[ready.map(|it| it.to_string())]
            data-degraded=[degraded.map(|it| it.to_string())] { (words) }
    }
}

fn fact_markup(fact: &Field, values: &Value) -> Markup {
    html! {
        div {
            dt { (fact.label) }
            dd data-key=(fact.key) data-format=(fact.format.name()) { (fact.format.write(&values[fact.key])) }
        }
    }
}

fn table_markup(table: &StatusTable, values: &Value) -> Markup {
    let none = Vec::new();
    let rows = values[table.key].as_array().unwrap_or(&none);
    let heading = format!("heading-{}", table.key);
    html! {
        section aria-labelledby=(heading) {
            h2 #(heading) { (table.caption) }
            @if !table.note.is_empty() { p.note { (table.note) } }
            // What can be scrolled must be reached by keyboard, too.
            div.scroll tabindex="0" role="region" aria-labelledby=(heading) {
                table data-key=(table.key) {
                    thead {
                        tr {
                            @for column in table.columns {
                                th scope="col" class=[class(column)]
                                    data-key=(column.key) data-format=(column.format.name()) { (column.label) }
                            }
                        }
                    }
                    tbody { @for row in rows { (row_markup(table, row)) } }
                }
            }
            p.empty hidden[!rows.is_empty()] { (table.empty) }
        }
    }
}

fn row_markup(table: &StatusTable, row: &Value) -> Markup {
    html! {
        tr {
            @for (index, column) in table.columns.iter().enumerate() {
                @let text = column.format.write(&row[column.key]);
                @let state = (column.format == super::Format::State).then_some(&text);
                @if index == 0 {
                    th scope="row" class=[class(column)] data-state=[state] { (text) }
                } @else {
                    td class=[class(column)] data-state=[state] { (text) }
                }
            }
        }
    }
}

fn class(column: &Field) -> Option<&'static str> {
    match (column.format.is_number(), column.detail) {
        (true, true) => Some("number detail"),
        (true, false) => Some("number"),
        (false, true) => Some("detail"),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use flow_report::{Axis, Series};
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::super::Format;
    use super::*;

    const LAYOUT: Layout = Layout {
        title: "A & B",
        about: "What is shown",
        facts: &[Field::new("age_s", "Age", Format::Seconds)],
        tables: &[StatusTable {
            key: "rows",
            caption: "Rows",
            note: "",
            empty: "There are none.",
            columns: &[
                Field::new("name", "Name", Format::Text),
                Field::detail("bytes", "Bytes", Format::Bytes),
            ],
        }],
        documents: &[("/more.json", "more & more")],
    };

    fn plot() -> Plot {
        let points = vec![(0.0, 1.0), (1.0, 2.0)];
        Plot::new("<b>", Axis::linear("x"), Axis::linear("y")).with(Series::line("<i>", points))
    }

    #[test]
    fn plots_are_part_of_the_page_and_escaped() {
        let page = document(&LAYOUT, &Ok(json!({})), &[plot(), plot()]);
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>") && !page.contains("<i>"));
        assert!(
            page.contains("<a href=\"more.json\">more &amp; more</a>"),
            "{page}"
        );
        assert!(!document(&LAYOUT, &Ok(json!({})), &[]).contains("id=\"plots\""));
    }

    #[test]
    fn whatever_is_shown_is_escaped() {
        let evil = "<script>alert(1)</script>\"'&";
        let status = json!({ "readiness": evil, "rows": [{ "name": evil, "bytes": 2_000 }] });
        let page = document(&LAYOUT, &Ok(status), &[]);
        assert!(page.contains("<title>A &amp; B</title>"));
        assert!(!page.contains("<script>alert"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert(1)").count(), 2);
        assert!(page.contains("<td class=\"number detail\">2.00 kB</td>"));
        let page = document(&LAYOUT, &Err(evil.to_owned()), &[]);
        assert!(!page.contains("<script>alert"), "{page}");
        assert!(page.contains("There are none."));
    }

    #[test]
    fn the_page_has_nothing_from_outside_and_no_inline_handlers() {
        let page = document(&LAYOUT, &Ok(json!({})), &[plot()]);
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for outside in [
            "http:", "https:", "src=", "@import", "url(", " onclick", " style=",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<script>").count(), 1);
        assert_eq!(page.matches("<style>").count(), 1);
        // What would end the elements early, and so change their digests.
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
        assert!(!SCRIPT.contains("innerHTML"));
    }

    #[test]
    fn the_policy_names_the_digests_of_what_the_page_has() {
        let page = document(&LAYOUT, &Ok(json!({})), &[]);
        for (element, directive) in [("script", "script-src"), ("style", "style-src")] {
            let (_, rest) = page
                .split_once(&format!("<{element}>"))
                .expect("it is there");
            let (text, _) = rest.split_once(&format!("</{element}>")).expect("it ends");
            let digest = BASE64_STANDARD.encode(Sha256::digest(text));
            let allowed = format!("{directive} 'sha256-{digest}'");
            assert!(
                CONTENT_SECURITY_POLICY.contains(&allowed),
                "the text has changed; its digest is now {digest}"
            );
        }
        assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"));
    }
}
