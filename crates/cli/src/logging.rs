//! Logging to standard error: one line a record, as text or as journald takes it.

use std::fmt;
use std::io::IsTerminal as _;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts logging to standard error; the variable `RUST_LOG` sets the level, `info` by default.
///
/// Each record is one line: a line break in what it says is written as `\n`. Where standard error
/// is journald's stream (`JOURNAL_STREAM`), a record begins with its priority, as in `<4>`, and has
/// neither time nor level, which journald shows.
pub fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match is_read_by_journald() {
        true => subscriber.event_format(for_journald()).init(),
        false => subscriber
            .event_format(as_text(std::io::stderr().is_terminal()))
            .init(),
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
    fn stream_is_journald_s_where_both_numbers_agree() {
        assert!(is_stream("8:1234", (8, 1234)));
        for other in [
            "", "8", "8:", ":1234", "8:1235", "9:1234", "8:1234:1", "x:y",
        ] {
            assert!(!is_stream(other, (8, 1234)), "{other}");
        }
    }
}
