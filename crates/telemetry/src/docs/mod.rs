//! Compares a page of documentation with a live scrape.
//!
//! ```
//! use flow_telemetry::docs;
//!
//! let page = "
//! | name | type | unit | labels | meaning |
//! |---|---|---|---|---|
//! | `splitter_handovers_total` | counter | flows | `reason` (drained, max_wait) | Flows moved to the long tunnel |
//! ";
//! let scrape = "\
//! ## HELP splitter_handovers Flows moved.
//! ## TYPE splitter_handovers counter
//! splitter_handovers_total{reason=\"drained\"} 7
//! ## EOF
//! ";
//! let documented = docs::parse_page(page)?;
//! let live = docs::parse_exposition(scrape)?;
//! assert!(docs::compare(&documented, &live).is_empty());
//! assert_eq!(live[0].value(&[("reason", "drained")]), Some(7.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compare;
mod exposition;
mod page;

pub use compare::{Mismatch, compare};
pub use exposition::{ExpositionError, Family, Sample, parse_exposition};
pub use page::{DocumentedFamily, DocumentedLabel, PageError, parse_page};
