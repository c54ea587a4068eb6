//! Reads the workspace's packages and sources, for tests that hold its layout and documentation to
//! their rules (`tests/rules/`).

mod arrows;
mod lines;
mod public;
mod source;
mod workspace;

pub use self::{
    arrows::{Cycle, cycles, module_arrows},
    lines::code_lines,
    public::{Item, first_line, public_items},
    source::{Crate, Module},
    workspace::{Dependency, Kind, Package, Workspace, cargo},
};
