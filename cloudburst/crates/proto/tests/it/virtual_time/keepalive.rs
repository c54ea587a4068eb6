//! Address translators that forget who says nothing, and the option that keeps them from it.

use std::time::Duration;

use crate::simulation::{
    path::SECOND,
    scenario::{Scenario, SendPlan},
    world::World,
};

/// The translator before host 0 forgets a mapping by which nothing has left for so long.
const FORGETS_AFTER: u64 = 30 * SECOND;

/// Tells whether a request, its reply and a message beside them arrive: host 0 asks host 1, whose reply takes 100 s
/// and which says something by itself at 110 s.
fn arrivals(keepalive: Option<Duration>) -> Vec<bool> {
    let mut scenario = Scenario::plain(9).with_key_pairs();
    scenario.hosts[0].config.keepalive = keepalive;
    scenario.hosts[0].translator_forgets_ns = Some(FORGETS_AFTER);
    scenario.hosts[1].think_ns = 100 * SECOND;
    let request = SendPlan {
        is_request: true,
        ..SendPlan::new(0, 1_000)
    };
    let push = SendPlan {
        from: 1,
        to: 0,
        back: true,
        ..SendPlan::new(110 * SECOND, 20_000)
    };
    scenario.sends = vec![request, push];
    let mut world = World::new(scenario);
    world.run_until(150 * SECOND);
    let messages = world.records.messages.iter();
    messages.map(|it| it.arrived.is_some()).collect()
}

#[test]
fn with_a_keepalive_a_late_reply_and_a_push_come_through_a_translator_that_forgets() {
    let kept = arrivals(Some(Duration::from_secs(20)));
    assert_eq!(kept, [true, true, true]);
    // What is pinged while a reply is awaited ends after a minute.
    assert_eq!(arrivals(None), [true, false, false]);
}
