//! Reads the workspace's packages and sources, for tests that hold its layout and documentation to
//! their rules (`tests/rules/`).

mod dependencies;
mod items;
mod lines;

mod source;
mod workspace;

pub use self::{
    dependencies::{Cycle, cycles, module_dependencies},
    items::{Item, Reach, first_line, items},
    lines::code_lines,
    source::{Crate, Module},
    workspace::{Dependency, Kind, Package, Workspace, cargo},
};
