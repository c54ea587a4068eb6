//! Counters that stay at their ends instead of beginning again.

/// Adds to a counter, which stays at its end.
pub const fn tally(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

/// Takes off a counter of what there is now. What was never counted is a mistake of the caller, which
/// panics where assertions are on.
pub fn untally(counter: &mut u64, less: u64) {
    debug_assert!(*counter >= less, "what was never counted is taken off");
    *counter = counter.saturating_sub(less);
}

/// Gives back some of what is held. What was never taken is a mistake of the caller, which panics where
/// assertions are on.
pub fn release(held: &mut usize, less: usize) {
    debug_assert!(*held >= less, "what was never taken is given back");
    *held = held.saturating_sub(less);
}
