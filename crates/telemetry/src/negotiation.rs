//! Content negotiation of a scrape (RFC 9110 §12.5): OpenMetrics or Prometheus' older text format, with gzip
//! or without.
//!
//! OpenMetrics is what is encoded and what whoever says nothing gets. The older format is made from it, line
//! by line, for clients that ask for `text/plain` and not for OpenMetrics: `promtool check metrics` and
//! scrapers from before 2020.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use hyper::header::{self, HeaderMap, HeaderName};

/// Fast rather than small: the 11 kB of an idle `cloudburst serve` become 2.8 kB.
const LEVEL: u32 = 1;

/// What a client takes, by its request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    is_classic: bool,
    is_compressed: bool,
}

impl Accepted {
    /// Reads it from a request's headers.
    pub(crate) fn by(headers: &HeaderMap) -> Self {
        let quality = |header: HeaderName, name: &str| {
            let values = headers.get_all(header).into_iter();
            let values = values.filter_map(|value| value.to_str().ok());
            let all = values.flat_map(|value| value.split(','));
            let qualities = all.filter_map(|item| quality(item, name));
            qualities.reduce(f32::max).unwrap_or(0.0)
        };
        let open = quality(header::ACCEPT, "application/openmetrics-text");
        Self {
            is_classic: quality(header::ACCEPT, "text/plain") > open,
            is_compressed: quality(header::ACCEPT_ENCODING, "gzip") > 0.0,
        }
    }

    /// The type of what is sent.
    pub(crate) fn content_type(self) -> &'static str {
        match self.is_classic {
            true => "text/plain; version=0.0.4; charset=utf-8",
            false => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The encoding of what is sent, where it has one.
    pub(crate) fn content_encoding(self) -> Option<&'static str> {
        self.is_compressed.then_some("gzip")
    }

    /// Brings an exposition in OpenMetrics into the form that was asked for.
    ///
    /// # Errors
    /// None that memory does not have.
    pub(crate) fn apply(self, exposition: String) -> io::Result<Vec<u8>> {
        let text = match self.is_classic {
            true => classic(&exposition),
            false => exposition,
        };
        if !self.is_compressed {
            return Ok(text.into_bytes());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        encoder.write_all(text.as_bytes())?;
        encoder.finish()
    }
}

/// How much an item of a header is wanted if it is of this name, from 0 (not at all) to 1.
fn quality(item: &str, name: &str) -> Option<f32> {
    let mut parts = item.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(name) {
        return None;
    }
    let stated = parts.find_map(|part| part.strip_prefix("q="));
    Some(stated.map_or(1.0, |value| value.parse().unwrap_or(0.0)))
}

/// Makes Prometheus' text format 0.0.4 of OpenMetrics 1.0: a family is named as its samples are, there are
/// no units, exemplars and end, and the kinds `info` and `unknown` are called otherwise.
fn classic(exposition: &str) -> String {
    let mut text = String::with_capacity(exposition.len());
    // What is said of a family before its kind, by which it is named.
    let mut help = None;
    for line in exposition.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ');
        } else if let Some((family, kind)) = metadata(line, "# TYPE ") {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == family) {
                text.push_str(&format!("# HELP {family}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {family}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(without_exemplar(line));
            text.push('\n');
        }
    }
    text
}

fn metadata<'t>(line: &'t str, keyword: &str) -> Option<(&'t str, &'t str)> {
    line.strip_prefix(keyword)?.split_once(' ')
}

/// Cuts a sample off where its exemplar begins; a label's value may have the same letters.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in sample.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use hyper::header::HeaderValue;

    use super::*;

    fn by(accept: Option<&'static str>, encoding: Option<&'static str>) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::ACCEPT, accept),
            (header::ACCEPT_ENCODING, encoding),
        ] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        let accepted = Accepted::by(&headers);
        (accepted.is_classic, accepted.is_compressed)
    }

    #[test]
    fn who_prefers_the_older_format_gets_it_and_all_others_openmetrics() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(by(Some(prometheus), Some("gzip")), (false, true));
        assert_eq!(by(Some("text/plain; version=0.0.4"), None), (true, false));
        assert_eq!(by(Some("*/*"), Some("br, deflate")), (false, false));
        assert_eq!(by(None, None), (false, false));
        let both = "text/plain, application/openmetrics-text;q=0.9";
        assert!(by(Some(both), None).0);
        assert!(!by(Some("text/plain;q=0"), Some("gzip;q=0")).0);
        assert!(!by(None, Some("gzip;q=0")).1);
        assert!(!by(None, Some("gzip;q=much")).1);
    }

    #[test]
    fn the_older_format_names_families_as_their_samples() {
        let open = "# HELP a_flows Flows.\n# TYPE a_flows counter\n\
                    a_flows_total{x=\"# \\\" #\"} 3 # {id=\"7\"} 1.0\n\
                    # HELP a_build Version.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_time_seconds Times.\n# TYPE a_time_seconds histogram\n\
                    # UNIT a_time_seconds seconds\na_time_seconds_bucket{le=\"+Inf\"} 2 # {id=\"8\"} 0.5\n\
                    # EOF\n";
        let expected = "# HELP a_flows_total Flows.\n# TYPE a_flows_total counter\n\
                        a_flows_total{x=\"# \\\" #\"} 3\n\
                        # HELP a_build_info Version.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
                        # HELP a_time_seconds Times.\n# TYPE a_time_seconds histogram\n\
                        a_time_seconds_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(classic(open), expected);
    }

    #[test]
    fn what_is_compressed_unpacks_to_the_same() {
        let accepted = Accepted {
            is_classic: false,
            is_compressed: true,
        };
        let text = "a_flows_total 3\n".repeat(1000);
        let packed = accepted.apply(text.clone()).unwrap();
        assert!(packed.len() * 7 < text.len(), "{}", packed.len());
        let mut unpacked = String::new();
        GzDecoder::new(&*packed)
            .read_to_string(&mut unpacked)
            .unwrap();
        assert_eq!(unpacked, text);
    }
}
