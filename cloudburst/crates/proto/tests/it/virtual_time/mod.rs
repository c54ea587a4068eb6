//! Endpoints in a network that is made up, in a time that is made up.

mod adversary;
mod counting;
mod faults;
mod goodbyes;
mod hostile;
mod keepalive;
mod key_holder;
mod load;
mod marks;
mod outages;
mod path_revalidation;
mod performance;
mod port_rotation;
mod priority;
mod probes;
mod reservations;
mod route_change;
mod seeds;
mod silence;
mod soak;
mod sweep;
