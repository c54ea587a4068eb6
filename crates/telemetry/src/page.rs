//! The status page: what a program shows to people at `/`, and to programs at `/status.json`.
//!
//! A program declares [what there is to show](Layout) and [reads it](Status) on request. The
//! page is one HTML file that refers to nothing outside of itself: its rows are there without
//! JavaScript, and with it they follow `/status.json`. Both write numbers [alike](Format).
//!
//! All who reach the endpoint can read all of it: leave out what they must not know.

mod format;
mod html;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use flow_report::Plot;
use serde_json::Value;

pub use format::Format;
pub(crate) use html::{CONTENT_SECURITY_POLICY, document};

use crate::Readiness;

/// Reads what the page shows, on request.
///
/// The answer is a JSON object with the keys that the [`Layout`] names: the facts at the top, and
/// for each table a list of objects. More keys do no harm; what is missing shows as not known.
/// `ready`, `degraded` and `readiness` are added by the endpoint. The implementation bounds how much it tells
/// (what is longer than 256 KiB is not served) and how often it looks.
pub trait Status: fmt::Debug + Send + Sync + 'static {
    /// Reads the status now; an error says what could not be read.
    fn status(&self) -> StatusFuture<'_>;

    /// Draws what the page shows above its tables; nothing by default. Must not block.
    fn plots(&self) -> Vec<Plot> {
        Vec::new()
    }

    /// Returns the JSON of one of the [documents](Layout::documents) by its path; `None` where there is
    /// none. Must not block.
    fn document(&self, path: &str) -> Option<String> {
        let _ = path;
        None
    }
}

/// The future that [`Status::status`] returns.
pub type StatusFuture<'s> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 's>>;

/// The layout of a status page: its values and tables.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Heading of the page.
    pub title: &'static str,
    /// A sentence on what the reader sees.
    pub about: &'static str,
    /// Single values above the tables.
    pub facts: &'static [Field],
    /// Tables, in their order on the page.
    pub tables: &'static [StatusTable],
    /// More JSON that is served: its path and what it is called in a link.
    pub documents: &'static [(&'static str, &'static str)],
}

/// A list of objects, shown as a table.
#[derive(Clone, Copy, Debug)]
pub struct StatusTable {
    /// The key of the list.
    pub key: &'static str,
    /// Heading of the table.
    pub caption: &'static str,
    /// Note to the reader; may be empty.
    pub note: &'static str,
    /// Text in place of an empty list.
    pub empty: &'static str,
    /// Columns; the first one names the row.
    pub columns: &'static [Field],
}

/// A value and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its key in the object.
    pub key: &'static str,
    /// Label that the reader knows it by.
    pub label: &'static str,
    /// How it is written.
    pub format: Format,
    /// Left out on narrow screens.
    pub detail: bool,
}

impl Field {
    /// A value that is shown on any screen.
    pub const fn new(key: &'static str, label: &'static str, format: Format) -> Self {
        Self {
            key,
            label,
            format,
            detail: false,
        }
    }

    /// A value that is left out on narrow screens.
    pub const fn detail(key: &'static str, label: &'static str, format: Format) -> Self {
        Self {
            detail: true,
            ..Self::new(key, label, format)
        }
    }
}

/// A layout and what fills it.
#[derive(Clone, Debug)]
pub struct StatusPage {
    layout: Layout,
    status: Arc<dyn Status>,
}

impl StatusPage {
    /// The page of that layout, with what `status` reads.
    pub fn new(layout: Layout, status: impl Status) -> Self {
        Self {
            layout,
            status: Arc::new(status),
        }
    }

    /// Returns the answer to `/status.json`.
    pub(crate) async fn json(&self, readiness: &Readiness) -> Result<String, String> {
        let text = self.read(readiness).await?.to_string();
        if text.len() > MAX_STATUS_BYTES {
            let length = text.len();
            tracing::error!(
                event = "page_too_long",
                length,
                "the status is too long to be served"
            );
            return Err(format!(
                "the status is {length} bytes long, more than the {MAX_STATUS_BYTES} that are served"
            ));
        }
        Ok(text)
    }

    /// Returns the answer to `/`, with what is known now.
    pub(crate) async fn html(&self, readiness: &Readiness) -> String {
        let status = self.read(readiness).await;
        document(&self.layout, &status, &self.status.plots())
    }

    /// Returns the document at a path, if the layout lists it.
    pub(crate) fn document(&self, path: &str) -> Option<String> {
        let is_listed = self
            .layout
            .documents
            .iter()
            .any(|(listed, _)| *listed == path);
        is_listed.then(|| self.status.document(path)).flatten()
    }

    async fn read(&self, readiness: &Readiness) -> Result<Value, String> {
        let mut status = self.status.status().await?;
        let Some(object) = status.as_object_mut() else {
            return Err("the status is no JSON object".to_owned());
        };
        object.insert("ready".to_owned(), readiness.is_ready().into());
        object.insert("degraded".to_owned(), readiness.is_degraded().into());
        object.insert("readiness".to_owned(), readiness.to_string().into());
        Ok(status)
    }
}

/// Largest status document: a browser on a bad line still takes it in a second, and fifty flows
/// need a tenth of it.
const MAX_STATUS_BYTES: usize = 256 * 1024;
