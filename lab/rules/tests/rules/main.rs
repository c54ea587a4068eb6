//! The rules of CONTRIBUTING.md that a program can hold.

mod reading;
