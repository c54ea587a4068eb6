//! Laws of order, priority and shares, held where time is its own: the policy that the kernel runs
//! in front of two shaped tunnels, on many seeds, with a processor that may be taken away.
//!
//! These are the twins of the claims about real time in `splitter-agent`'s tests.

mod border;
mod ideal;
mod laws;
mod mix;
mod parallel;
mod shaper;
mod stalls;
mod stay;
mod tcp;
mod traffic;
