//! Logging to standard error: one line a record, as text, as journald takes it, or as JSON.

use std::fmt;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Identity, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// The form of log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, message and fields.
    Text,
    /// The priority in front, as in `<4>`, then message and fields: what journald takes apart.
    Journald,
    /// One object a record.
    Json,
}

/// Starts logging to standard error; the variable `RUST_LOG` sets the level, `info` by default.
///
/// Each record is one line: a line break in what it says is written as `\n`. Unless a format is given
/// it is journald's where standard error is its stream (`JOURNAL_STREAM`), which has neither time nor
/// level, since journald shows these, and text elsewhere. As JSON a record has `time`, `level`,
/// `message`, and its fields.
pub fn start_logging(format: Option<LogFormat>) {
    start_logging_also_to(format, Identity::new());
}

/// Starts logging as [`start_logging`] does, and hands all records of `info` and above to `also`,
/// whatever of them is written.
pub fn start_logging_also_to<L>(format: Option<LogFormat>, also: L)
where
    L: Layer<Registry> + Send + Sync,
{
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Spans are for `also`; a record is written the same whatever it happens in.
    let filter = filter.and(filter_fn(|metadata| metadata.is_event()));
    let records = tracing_subscriber::registry().with(also.with_filter(LevelFilter::INFO));
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let detected = || match is_read_by_journald() {
        true => LogFormat::Journald,
        false => LogFormat::Text,
    };
    match format.unwrap_or_else(detected) {
        LogFormat::Text => {
            let is_terminal = std::io::stderr().is_terminal();
            let written = written.event_format(as_text(is_terminal));
            records.with(written.with_filter(filter)).init();
        }
        LogFormat::Journald => {
            let written = written.event_format(for_journald());
            records.with(written.with_filter(filter)).init();
        }
        LogFormat::Json => {
            let written = written.event_format(AsJson);
            records.with(written.with_filter(filter)).init();
        }
    }
}

fn as_text(ansi: bool) -> OneLine<Format> {
    OneLine {
        record: Format::default().with_target(false).with_ansi(ansi),
        has_priority: false,
    }
}

fn for_journald() -> OneLine<Format<tracing_subscriber::fmt::format::Full, ()>> {
    let record = Format::default().with_target(false).with_ansi(false);
    OneLine {
        record: record.with_level(false).without_time(),
        has_priority: true,
    }
}

/// Writes a record as one line.
struct OneLine<F> {
    record: F,
    has_priority: bool,
}

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut record = String::new();
        self.record
            .format_event(context, Writer::new(&mut record), event)?;
        if self.has_priority {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        write_in_one_line(&mut writer, record.trim_matches(['\n', ' ']))?;
        writer.write_char('\n')
    }
}

/// Writes a record as an object.
struct AsJson;

impl<S, N> FormatEvent<S, N> for AsJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut record) = fields;
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        // Last, so that no field takes their place.
        record.insert("time".to_owned(), time.into());
        let level = event.metadata().level().as_str().to_lowercase();
        record.insert("level".to_owned(), level.into());
        writeln!(writer, "{}", Value::Object(record))
    }
}

/// The fields of a record, the message among them.
struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        // Where a record of the crate `log` comes from is no part of it.
        if !field.name().starts_with("log.") {
            self.0.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}

/// Also a carriage return begins a line on a terminal, and would hide what stands there.
fn write_in_one_line(writer: &mut Writer<'_>, record: &str) -> fmt::Result {
    for part in record.split_inclusive(['\n', '\r']) {
        let (text, line_break) = match part.strip_suffix('\n') {
            Some(text) => (text, "\\n"),
            None => match part.strip_suffix('\r') {
                Some(text) => (text, "\\r"),
                None => (part, ""),
            },
        };
        writer.write_str(text)?;
        writer.write_str(line_break)?;
    }
    Ok(())
}

/// The severity of RFC 5424, table 2.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Services inherit the variable and may have redirected the stream since, so that both have to
/// agree (systemd.exec(5)).
fn is_read_by_journald() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    standard_error().is_some_and(|file| is_stream(&named, file))
}

/// Compares `DEVICE:INODE` with a file's numbers.
fn is_stream(named: &str, (device, inode): (u64, u64)) -> bool {
    let numbers = named.split_once(':').and_then(|(device, inode)| {
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    numbers == Some((device, inode))
}

#[cfg(unix)]
fn standard_error() -> Option<(u64, u64)> {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    let copy = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
    let metadata = std::fs::File::from(copy).metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn standard_error() -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::Registry;
    use tracing_subscriber::fmt::format::DefaultFields;

    use super::*;

    /// Returns the text of the records that `log` makes.
    fn written<F>(format: F, log: impl FnOnce()) -> String
    where
        F: FormatEvent<Registry, DefaultFields> + Send + Sync + 'static,
    {
        use tracing_subscriber::layer::SubscriberExt as _;

        let sink = Sink::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(sink.clone())
            .event_format(format);
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let bytes = sink.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).unwrap()
    }

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl tracing_subscriber::fmt::MakeWriter<'_> for Sink {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn record_with_line_breaks_is_one_line() {
        let log = || {
            tracing::warn!(from = %"a\nb", "changed:\n+ one\r\n- two");
            tracing::info!("next");
        };
        let text = written(as_text(false), log);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].ends_with(r" WARN changed:\n+ one\r\n- two from=a\nb"),
            "{text}"
        );
        assert!(lines[1].ends_with(" INFO next"), "{text}");
    }

    #[test]
    fn colours_are_for_terminals() {
        let escape = '\u{1b}';
        assert!(written(as_text(true), || tracing::info!("x")).contains(escape));
        assert!(!written(as_text(false), || tracing::info!("x")).contains(escape));
    }

    #[test]
    fn journald_has_the_priority_and_no_time() {
        let log = || {
            tracing::error!(code = 1, "a\nb");
            tracing::warn!("w");
            tracing::info!("i");
            tracing::debug!("d");
        };
        let text = written(for_journald(), log);
        assert_eq!(text, "<3>a\\nb code=1\n<4>w\n<6>i\n<7>d\n");
    }

    #[test]
    fn json_is_an_object_a_line_with_time_level_and_fields() {
        let log = || {
            tracing::warn!(event = "moved", device = %"wan0", count = 3, is_up = true, "a\nb\"c");
            tracing::info!(level = "mine", time = 1, gain = 0.5, "x");
        };
        let text = written(AsJson, log);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        let first = serde_json::json!({
            "time": lines[0]["time"], "level": "warn", "message": "a\nb\"c", "event": "moved",
            "device": "wan0", "count": 3, "is_up": true,
        });
        assert_eq!(lines[0], first);
        assert_eq!(lines[1]["level"], "info");
        assert_eq!(lines[1]["gain"], 0.5);
        let time = lines[1]["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    }

    #[test]
    fn stream_is_journald_s_where_both_numbers_agree() {
        assert!(is_stream("8:1234", (8, 1234)));
        for other in [
            "", "8", "8:", ":1234", "8:1235", "9:1234", "8:1234:1", "x:y",
        ] {
            assert!(!is_stream(other, (8, 1234)), "{other}");
        }
    }
}
