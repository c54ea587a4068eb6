//! Reports of measurements: [summary statistics](Summary) of samples, [confidence
//! intervals](Estimate), [medians with bounds](Median), [tables](Table), [plots](Plot), [bars](Bars) and [claims](Claims) as SVG, and [pages](Page) that hold all of
//! it in one HTML file without references to anything outside.
//!
//! Colours come from the page's style sheet, so plots and tables follow the reader's light or dark
//! theme; a plot written to a file of its own carries that style sheet with it.
//!
//! ```
//! use flow_report::{Axis, Page, Plot, Series, Summary, Table};
//!
//! let fct = Summary::new([3.1, 2.9, 4.0, 12.5]);
//! let mut table = Table::new(["scheme", "mean ms", "p99 ms"]);
//! table.row(["split", &format!("{:.2}", fct.mean()), &format!("{:.2}", fct.percentile(99.0))]);
//!
//! let plot = Plot::new("Flow completion time", Axis::log("ms"), Axis::linear("share of flows"))
//!     .with(Series::line("split", fct.cumulative(100)));
//! let html = Page::new("A run").table(&table).plot(&plot).to_html();
//! assert!(html.contains("<svg"));
//! ```

mod bars;
mod claims;
mod colours;
mod estimate;
mod median;
mod page;
mod plot;
mod scale;
mod student;
mod summary;
mod table;

pub use self::{
    bars::Bars,
    claims::{Claim, Claims},
    colours::COLOURS as STYLE_SHEET,
    estimate::Estimate,
    median::Median,
    page::Page,
    plot::{Axis, Plot, Series},
    summary::Summary,
    table::Table,
};
