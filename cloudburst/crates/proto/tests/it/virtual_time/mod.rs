//! Endpoints in a network that is made up, in a time that is made up.

mod faults;
mod hostile;
mod load;
mod performance;
mod ports;
mod revival;
mod silence;
mod sweep;
