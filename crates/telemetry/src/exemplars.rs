//! Exemplars: single observations that stand for those in a bucket of a histogram (OpenMetrics 1.0,
//! "Exemplars").
//!
//! `prometheus-client` writes exemplars of the histograms that it counts itself, and cannot be given others.
//! Those of a histogram that a collector reads are put into the exposition here.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// An observation of a histogram, with what is known of it besides its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// Names and values of its labels.
    pub labels: BTreeMap<String, String>,
    /// The value that was observed, in the unit of the histogram.
    pub value: f64,
    /// The time of the observation in seconds since 1970, if it is known.
    pub unix_s: Option<f64>,
}

impl Exemplar {
    /// Counts the characters that labels take of what is allowed.
    fn characters(&self) -> usize {
        let labels = self.labels.iter();
        labels
            .map(|(name, value)| name.chars().count() + value.chars().count())
            .sum()
    }
}

/// Writes it as it stands behind a sample.
impl fmt::Display for Exemplar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("# {")?;
        for (index, (name, value)) in self.labels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            write!(out, "{comma}{name}=\"{}\"", value.replace('\n', "\\n"))?;
        }
        write!(out, "}} {}", self.value)?;
        self.unix_s.map_or(Ok(()), |at| write!(out, " {at}"))
    }
}

/// The exemplars of one histogram, which its collector sets whenever it is read.
#[derive(Clone, Debug, Default)]
pub struct Exemplars(Arc<Mutex<BTreeMap<usize, Exemplar>>>);

impl Exemplars {
    /// Takes these in the place of all before. The number in front of each is that of its bucket, counted
    /// from 0 in the order in which buckets are encoded.
    ///
    /// One whose labels have more than 128 characters, names and values together, is left out: the format
    /// allows no more.
    pub fn set(&self, exemplars: impl IntoIterator<Item = (usize, Exemplar)>) {
        let fits = |(_, it): &(usize, Exemplar)| it.characters() <= MOST_CHARACTERS;
        let exemplars = exemplars.into_iter().filter(fits).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = exemplars;
    }
}

/// Puts exemplars behind the buckets that they stand for, of histograms by their whole names.
pub(crate) fn insert(exposition: String, histograms: &[(String, Exemplars)]) -> String {
    let mut waiting = Vec::new();
    for (name, exemplars) in histograms {
        let exemplars = exemplars.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !exemplars.is_empty() {
            waiting.push((format!("{name}_bucket{{"), exemplars.clone(), 0));
        }
    }
    if waiting.is_empty() {
        return exposition;
    }
    let mut text = String::with_capacity(exposition.len() * 2);
    for line in exposition.lines() {
        text.push_str(line);
        let of_line = waiting
            .iter_mut()
            .find(|(begin, ..)| line.starts_with(begin.as_str()));
        if let Some((_, exemplars, bucket)) = of_line {
            if let Some(exemplar) = exemplars.get(&*bucket) {
                text.push_str(&format!(" {exemplar}"));
            }
            *bucket += 1;
        }
        text.push('\n');
    }
    text
}

/// OpenMetrics 1.0, "Exemplars".
const MOST_CHARACTERS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(message: &str, value: f64, unix_s: Option<f64>) -> Exemplar {
        let labels = [("message", message), ("paths", "4")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Exemplar {
            labels: labels.into(),
            value,
            unix_s,
        }
    }

    #[test]
    fn each_stands_behind_its_bucket_and_nothing_else_changes() {
        let exposition = "# TYPE a_seconds histogram\na_seconds_sum 9.5\na_seconds_count 3\n\
                          a_seconds_bucket{le=\"0.5\"} 2\na_seconds_bucket{le=\"1.0\"} 2\n\
                          a_seconds_bucket{le=\"+Inf\"} 3\n\
                          aa_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";
        let exemplars = Exemplars::default();
        let histograms = [("a_seconds".to_owned(), exemplars.clone())];
        assert_eq!(insert(exposition.to_owned(), &histograms), exposition);
        exemplars.set([
            (0, exemplar("7", 0.25, None)),
            (2, exemplar("say \"8\\\"", 9.0, Some(1_700_000_000.5))),
            (3, exemplar("9", 99.0, None)),
        ]);
        let expected = exposition
            .replace("le=\"0.5\"} 2", "le=\"0.5\"} 2 # {message=\"7\",paths=\"4\"} 0.25")
            .replace(
                "\na_seconds_bucket{le=\"+Inf\"} 3",
                "\na_seconds_bucket{le=\"+Inf\"} 3 # {message=\"say \\\"8\\\\\\\"\",paths=\"4\"} 9 1700000000.5",
            );
        assert_eq!(insert(exposition.to_owned(), &histograms), expected);
        exemplars.set([]);
        assert_eq!(insert(exposition.to_owned(), &histograms), exposition);
    }

    #[test]
    fn labels_that_are_too_long_are_left_out() {
        let exposition = "a_bucket{le=\"+Inf\"} 3\n".to_owned();
        let exemplars = Exemplars::default();
        let histograms = [("a".to_owned(), exemplars.clone())];
        // The names and the other value take 13.
        for (characters, is_shown) in [(115, true), (116, false)] {
            exemplars.set([(0, exemplar(&"ä".repeat(characters), 1.0, None))]);
            let text = insert(exposition.clone(), &histograms);
            assert_eq!(text.contains('#'), is_shown, "{characters}");
        }
    }
}
