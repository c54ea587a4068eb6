//! What the tests, the fuzz targets and the benchmarks of several crates share.
//! They include it by path, so that no crate that users build carries it.

pub(crate) mod checks;
pub(crate) mod fabric;
pub(crate) mod host;
pub(crate) mod oracle;
pub(crate) mod packet;
pub(crate) mod shapes;
