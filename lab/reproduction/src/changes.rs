//! Settings of scenarios that all schemes of simulated items are run with, in the place of their own.

use std::str::FromStr;

use anyhow::{Context, Result};
use toml::{Table, Value};

/// A table of a scenario's keys that is laid over each of its schemes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(Table);

impl Changes {
    /// Adds others, which come after these.
    pub fn add(&mut self, other: &Self) {
        lay_over(&mut self.0, &other.0);
    }

    /// The scenario with these laid over all of its schemes; without any the text as it is.
    ///
    /// # Errors
    ///
    /// When the text is no scenario with schemes.
    pub fn over(&self, scenario: String) -> Result<String> {
        if self.0.is_empty() {
            return Ok(scenario);
        }
        let mut scenario: Table = toml::from_str(&scenario)?;
        let schemes = scenario.get_mut("schemes").and_then(Value::as_table_mut);
        for (name, scheme) in schemes.context("the scenario has no schemes")? {
            let scheme = scheme.as_table_mut();
            let scheme = scheme.with_context(|| format!("{name} is no table"))?;
            lay_over(scheme, &self.0);
        }
        Ok(toml::to_string(&scenario)?)
    }
}

impl FromStr for Changes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let table: Table = toml::from_str(text)
            .map_err(|error| format!("it is no KEY=VALUE of TOML: {}", error.message()))?;
        if table.is_empty() {
            return Err("it names no key".to_owned());
        }
        Ok(Self(table))
    }
}

/// Replaces values of a table by those of another, table by table.
pub(crate) fn lay_over(table: &mut Table, changes: &Table) {
    for (key, change) in changes {
        match (table.get_mut(key), change) {
            (Some(Value::Table(inner)), Value::Table(change)) => lay_over(inner, change),
            _ => {
                table.insert(key.clone(), change.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_gets_them_and_keeps_the_rest() {
        let scenario = "about = \"two\"\n[schemes.plain]\n\
            [schemes.other]\ntransport = { control = \"reno\", rto_min_us = 5 }\n";
        let mut changes: Changes = "transport.rto_min_us=9".parse().unwrap();
        changes.add(&"transport.dupack_threshold=4".parse().unwrap());
        let text = changes.over(scenario.to_owned()).unwrap();
        let changed: Table = toml::from_str(&text).unwrap();
        let expected: Table = toml::from_str(
            "about = \"two\"\n\
             schemes.plain.transport = { rto_min_us = 9, dupack_threshold = 4 }\n\
             schemes.other.transport = { control = \"reno\", rto_min_us = 9, dupack_threshold = 4 }\n",
        )
        .unwrap();
        assert_eq!(changed, expected);
        let untouched = Changes::default().over(scenario.to_owned()).unwrap();
        assert_eq!(untouched, scenario);
    }

    #[test]
    fn what_sets_nothing_is_refused() {
        for wrong in ["", "transport.rto_min_us", "transport.rto_min_us="] {
            assert!(wrong.parse::<Changes>().is_err(), "{wrong:?}");
        }
        assert!(
            "a=1"
                .parse::<Changes>()
                .unwrap()
                .over(String::new())
                .is_err()
        );
    }
}
