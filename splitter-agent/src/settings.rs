//! The arguments of `splitter set`: pairs of a key and a value, and what a shell completes.

use std::sync::LazyLock;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Error;
use splitter_config::{Change, Key, keys};

/// Takes any text, and names keys and words to those who complete it. What is right is decided
/// by the agent.
#[derive(Debug, Clone)]
pub(crate) struct Settings;

impl TypedValueParser for Settings {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(candidates().into_iter()))
    }
}

/// Pairs keys with values: `KEY VALUE` or `KEY=VALUE`, in any order.
///
/// # Errors
/// In words, when a key is the last argument.
pub(crate) fn pairs(arguments: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let mut pairs = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        pairs.push(match argument.split_once('=') {
            Some(pair) => pair,
            None => match rest.next() {
                Some(value) => (argument.as_str(), value.as_str()),
                None => {
                    return Err(format!(
                        "{argument}: no value is given; give keys and values in turns, as in \
                         `splitter set threshold 60`, or `splitter set threshold=60`"
                    ));
                }
            },
        });
    }
    Ok(pairs)
}

/// The keys that can be set, then what they take where that is a word: as the pair that most
/// shells complete, and alone, as bash sees what follows an equals sign.
fn candidates() -> Vec<PossibleValue> {
    let settable = keys().iter().filter(|key| key.change == Change::Set);
    let mut candidates: Vec<_> = settable
        .map(|key| PossibleValue::new(key.name.as_str()).help(first_sentence(key)))
        .collect();
    // Names of candidates live as long as the program.
    static PAIRS: LazyLock<Vec<(String, &str, &str)>> = LazyLock::new(|| {
        let settable = keys().iter().filter(|key| key.change == Change::Set);
        let words = settable.flat_map(|key| key.words.iter().map(move |it| (key, it)));
        words
            .map(|(key, (word, meaning))| (format!("{}={word}", key.name), *word, *meaning))
            .collect()
    });
    let pairs = PAIRS.iter();
    candidates.extend(pairs.map(|(pair, _, it)| PossibleValue::new(pair.as_str()).help(*it)));
    let mut alone: Vec<_> = PAIRS.iter().map(|(_, word, _)| *word).collect();
    alone.sort_unstable();
    alone.dedup();
    candidates.extend(alone.into_iter().map(PossibleValue::new));
    candidates
}

fn first_sentence(key: &Key) -> String {
    let (sentence, _) = key.doc.split_once(". ").unwrap_or((&key.doc, ""));
    sentence.trim_end_matches('.').replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_in_turns_or_with_an_equals_sign() {
        let given = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
            let pairs = pairs(&arguments)?;
            let pairs = pairs
                .into_iter()
                .map(|(key, value)| format!("{key}: {value}"));
            Ok::<_, String>(pairs.collect::<Vec<_>>())
        };
        let expected = Ok(vec!["unit: bytes".to_owned(), "threshold: 60".to_owned()]);
        assert_eq!(given(&["unit", "bytes", "threshold", "60"]), expected);
        assert_eq!(given(&["unit=bytes", "threshold", "60"]), expected);
        assert_eq!(given(&["unit", "bytes", "threshold=60"]), expected);
        assert!(
            given(&["unit=bytes", "threshold"])
                .unwrap_err()
                .starts_with("threshold: no value")
        );
    }

    #[test]
    fn every_key_that_can_be_set_is_completed_and_no_other() {
        let names: Vec<_> = candidates()
            .iter()
            .map(|it| it.get_name().to_owned())
            .collect();
        for key in keys() {
            assert_eq!(
                names.contains(&key.name),
                key.change == Change::Set,
                "{}",
                key.name
            );
        }
        assert!(names.contains(&"flows.unit=bytes".to_owned()), "{names:?}");
    }
}
