//! Whole numbers in a range: counts, marks, spans of time, bit masks.

use std::marker::PhantomData;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};
use splitter_policy::fwmark::MarkBits;
use toml::de::DeValue;

use super::{Kind, Refusals, Value, type_of};
use crate::values::{Dscp, InvalidValue, RulePriority, TableId};

/// A type whose values are whole numbers in a file.
pub(crate) trait Whole: Clone + Send + Sync + 'static {
    /// Makes a value of a number, or says why there is none.
    fn of(number: u32) -> Result<Self, InvalidValue>;

    /// Returns the number of a value.
    fn number(&self) -> u32;
}

/// Takes whole numbers in a range.
pub(crate) fn whole<T: Whole>(range: RangeInclusive<u32>) -> WholeNumber<T> {
    WholeNumber {
        range,
        unit: None,
        exception: None,
        made: PhantomData,
    }
}

/// Takes spans of time in whole seconds.
pub(crate) fn seconds(range: RangeInclusive<u32>) -> Span {
    let unit = Unit("seconds", "s");
    Span {
        range,
        unit,
        nanos: 1_000_000_000,
    }
}

/// Takes spans of time in whole milliseconds.
pub(crate) fn milliseconds(range: RangeInclusive<u32>) -> Span {
    let unit = Unit("milliseconds", "ms");
    Span {
        range,
        unit,
        nanos: 1_000_000,
    }
}

/// Takes spans of time in whole microseconds.
pub(crate) fn microseconds(range: RangeInclusive<u32>) -> Span {
    let unit = Unit("microseconds", "µs");
    Span {
        range,
        unit,
        nanos: 1_000,
    }
}

/// Takes one run of bits of the kernel's packet mark.
pub(crate) fn mask() -> Mask {
    Mask
}

/// Takes a word as well as the numbers of another kind.
pub(crate) fn or_word<N, T>(
    number: WholeNumber<N>,
    word: &'static str,
    meaning: &'static str,
    value: T,
) -> OrWord<N, T> {
    OrWord {
        number,
        word,
        meaning,
        value,
    }
}

/// A unit, by its name in messages and its sign in tables.
#[derive(Debug, Clone, Copy)]
struct Unit(&'static str, &'static str);

/// The kind of whole numbers.
pub(crate) struct WholeNumber<T> {
    range: RangeInclusive<u32>,
    unit: Option<Unit>,
    exception: Option<(u32, &'static str, &'static str)>,
    made: PhantomData<fn() -> T>,
}

impl<T> WholeNumber<T> {
    /// States the unit, by its name in messages and its sign in tables.
    pub(crate) fn unit(mut self, name: &'static str, sign: &'static str) -> Self {
        self.unit = Some(Unit(name, sign));
        self
    }

    /// Refuses a number outside the range with a problem and a remedy of its own.
    pub(crate) fn except(
        mut self,
        number: u32,
        problem: &'static str,
        remedy: &'static str,
    ) -> Self {
        self.exception = Some((number, problem, remedy));
        self
    }

    /// Reads the number; `or` closes the remedy.
    fn number(&self, value: &DeValue<'_>, default: &str, or: &str) -> Result<u32, InvalidValue> {
        match self.exception {
            Some((number, problem, remedy)) if as_number(value) == Some(number) => {
                Err(InvalidValue::new(problem, remedy))
            }
            _ => in_range(value, &self.range, self.unit, default, or),
        }
    }
}

fn as_number(value: &DeValue<'_>) -> Option<u32> {
    let number = value.as_integer()?;
    let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
    u32::try_from(number).ok()
}

fn in_range(
    value: &DeValue<'_>,
    range: &RangeInclusive<u32>,
    unit: Option<Unit>,
    default: &str,
    or: &str,
) -> Result<u32, InvalidValue> {
    let remedy = || {
        let range = format!(
            "give a whole number from {} to {}",
            range.start(),
            range.end()
        );
        let unit = unit.map_or(String::new(), |it| format!(" {}", it.0));
        let default = if default.is_empty() {
            String::new()
        } else {
            format!(" {default}")
        };
        format!("{range}{unit}{default}{or}")
    };
    if value.as_integer().is_none() {
        let problem = format!("this is {}, not a whole number", type_of(value));
        return Err(InvalidValue::new(problem, remedy()));
    }
    as_number(value)
        .filter(|number| range.contains(number))
        .ok_or_else(|| InvalidValue::new("this is out of range", remedy()))
}

fn values(range: &RangeInclusive<u32>, unit: Option<Unit>) -> String {
    let unit = unit.map_or(String::new(), |it| format!(" {}", it.1));
    format!("{} to {}{unit}", range.start(), range.end())
}

fn schema(range: &RangeInclusive<u32>) -> Json {
    json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
}

impl<T: Whole> Kind for WholeNumber<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<T> {
        let number = self.number(value.get_ref(), &refuse.default, "");
        refuse.take(value, number.and_then(T::of))
    }

    fn write(&self, value: &T) -> Json {
        json!(value.number())
    }

    fn values(&self) -> String {
        values(&self.range, self.unit)
    }

    fn schema(&self) -> Json {
        schema(&self.range)
    }
}

/// The kind of spans of time.
pub(crate) struct Span {
    range: RangeInclusive<u32>,
    unit: Unit,
    nanos: u32,
}

impl Kind for Span {
    type Value = Duration;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<Duration> {
        let number = in_range(
            value.get_ref(),
            &self.range,
            Some(self.unit),
            &refuse.default,
            "",
        );
        let number = refuse.take(value, number)?;
        Some(Duration::from_nanos(
            u64::from(number) * u64::from(self.nanos),
        ))
    }

    fn write(&self, value: &Duration) -> Json {
        let number = value.as_nanos() / u128::from(self.nanos);
        json!(u64::try_from(number).unwrap_or(u64::MAX))
    }

    fn values(&self) -> String {
        values(&self.range, Some(self.unit))
    }

    fn schema(&self) -> Json {
        schema(&self.range)
    }
}

/// The kind of a number or a word that stands for one to be found.
pub(crate) struct OrWord<N, T> {
    number: WholeNumber<N>,
    word: &'static str,
    meaning: &'static str,
    value: T,
}

impl<N: Whole, T> Kind for OrWord<N, T>
where
    T: Copy + From<N> + Serialize + Send + Sync + 'static,
{
    type Value = T;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<T> {
        if value.get_ref().as_str() == Some(self.word) {
            return Some(self.value);
        }
        let or = format!(", or \"{}\"", self.word);
        let number = self.number.number(value.get_ref(), &refuse.default, &or);
        let number = refuse.take(value, number.and_then(N::of))?;
        Some(number.into())
    }

    fn write(&self, value: &T) -> Json {
        json!(value)
    }

    fn values(&self) -> String {
        format!("{}, or `\"{}\"`", self.number.values(), self.word)
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [self.number.schema(), { "const": self.word }] })
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        vec![(self.word, self.meaning)]
    }
}

/// The kind of bit masks.
pub(crate) struct Mask;

impl Kind for Mask {
    type Value = MarkBits;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<MarkBits> {
        let number = in_range(value.get_ref(), &(1..=u32::MAX), None, &refuse.default, "");
        let bits = number.and_then(|number| {
            MarkBits::new(number).ok_or_else(|| {
                InvalidValue::new(
                    "its bits are not next to each other",
                    "give one run of bits, such as 0x7e or 0xff00",
                )
            })
        });
        refuse.take(value, bits)
    }

    fn write(&self, value: &MarkBits) -> Json {
        json!(value.mask())
    }

    fn show(&self, value: &MarkBits) -> String {
        format!("{:#x}", value.mask())
    }

    fn values(&self) -> String {
        "one run of bits".to_owned()
    }

    fn schema(&self) -> Json {
        schema(&(1..=u32::MAX))
    }
}

impl Whole for u32 {
    fn of(number: u32) -> Result<Self, InvalidValue> {
        Ok(number)
    }

    fn number(&self) -> u32 {
        *self
    }
}

macro_rules! whole {
    ($($type:ty: $via:ty;)*) => {$(
        impl Whole for $type {
            fn of(number: u32) -> Result<Self, InvalidValue> {
                let narrow = <$via>::try_from(number).map_err(|_| out_of_range())?;
                Self::try_from(narrow).map_err(|_| out_of_range())
            }

            fn number(&self) -> u32 {
                self.get().into()
            }
        }
    )*};
}

whole! {
    NonZeroU32: u32;
    NonZeroU16: u16;
    NonZeroU8: u8;
}

fn out_of_range() -> InvalidValue {
    InvalidValue::new("this is out of range", "give a smaller number, and not 0")
}

impl Whole for Dscp {
    fn of(number: u32) -> Result<Self, InvalidValue> {
        Self::try_from(u8::try_from(number).unwrap_or(u8::MAX))
    }

    fn number(&self) -> u32 {
        self.get().into()
    }
}

impl Whole for TableId {
    fn of(number: u32) -> Result<Self, InvalidValue> {
        number.try_into()
    }

    fn number(&self) -> u32 {
        self.get()
    }
}

impl Whole for RulePriority {
    fn of(number: u32) -> Result<Self, InvalidValue> {
        number.try_into()
    }

    fn number(&self) -> u32 {
        (*self).into()
    }
}
