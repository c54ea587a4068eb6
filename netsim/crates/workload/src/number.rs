//! Numbers in lists of flows: each is checked before it is believed.

use crate::error::Problem;

pub(crate) fn whole(what: &'static str, value: &str) -> Result<u64, Problem> {
    value.parse().map_err(|_| Problem::Number {
        what,
        value: value.to_owned(),
        must: "a whole number",
    })
}

pub(crate) fn host(what: &'static str, value: &str) -> Result<u32, Problem> {
    value.parse().map_err(|_| Problem::Number {
        what,
        value: value.to_owned(),
        must: "the number of a host",
    })
}

pub(crate) fn size(what: &'static str, value: &str) -> Result<u64, Problem> {
    let bytes = whole(what, value)?;
    if bytes == 0 {
        return Err(Problem::Number {
            what,
            value: value.to_owned(),
            must: "at least one byte",
        });
    }
    Ok(bytes)
}

/// Longest time that a run may last, with room: a day.
const MOST_NS: f64 = 86_400e9;

/// Reads a time of which one is `unit_ns`, to the nearest ns.
pub(crate) fn time_ns(what: &'static str, value: &str, unit_ns: f64) -> Result<u64, Problem> {
    let ns = value.parse::<f64>().map(|it| (it * unit_ns).round());
    match ns {
        Ok(ns) if (0.0..=MOST_NS).contains(&ns) => Ok(ns as u64),
        _ => Err(Problem::Number {
            what,
            value: value.to_owned(),
            must: "a time from 0 to a day",
        }),
    }
}
