//! Tests of the configuration from outside, in one binary.

mod documents;
mod schema;
mod wording;
