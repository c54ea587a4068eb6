//! Counted instructions: held against the record, and the interpreter against the kernel.

mod kernel;
mod record;

#[allow(dead_code, reason = "other tests need the rest of it")]
#[path = "../../../../splitter-agent/tests/it/support/loaded.rs"]
mod loaded;
#[allow(dead_code, reason = "other tests need the rest of it")]
#[path = "../../../../crates/splitter-policy/tests/support/packet.rs"]
mod packet;
#[allow(dead_code, reason = "other tests need the rest of it")]
#[path = "../../../../crates/splitter-policy/tests/support/shapes.rs"]
mod shapes;

use std::path::{Path, PathBuf};

use instructions::Objects;

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The objects that ship.
fn objects() -> Objects {
    Objects::read(&in_tree("")).unwrap_or_else(|error| panic!("{error:#}"))
}
