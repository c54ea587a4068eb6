//! The book held against what there is: its links and anchors, the command lines that it shows, which
//! are executed where that can be, its figures with the numbers in them, results of the reproduction among them, and its
//! pages as a browser lays them out.
//!
//! Each check returns a line about what it looked at, and what is wrong with its place.

pub mod bars;
pub mod blocks;
pub mod commands;
pub mod dashboard;
pub mod drawing;
pub mod figures;
pub mod links;
pub mod narrow;
pub mod numbers;
pub mod outputs;
pub mod pages;
pub mod plot;
pub mod results;
pub mod rig;
pub mod rows;
pub mod shell;
pub mod widths;

/// Sentences about what is wrong, each with its place.
pub type Faults = Vec<String>;
