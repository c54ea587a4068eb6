//! The book held against what there is: its figures, with the numbers in them.
//!
//! Each check returns a line about what it looked at, and what is wrong with its place.

pub mod bars;
pub mod drawing;
pub mod figures;
pub mod pages;

/// Sentences about what is wrong, each with its place.
pub type Faults = Vec<String>;
