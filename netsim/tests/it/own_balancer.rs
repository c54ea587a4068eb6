//! The worked example of a policy that is not built in.

#[path = "../../examples/own_balancer.rs"]
mod example;

/// It does not the same as flowlets that go anywhere, and no worse.
#[test]
fn a_policy_of_ones_own_sees_backlogs_and_decides() {
    let [letflow, own] = example::compare("letflow").expect("the scenario is right");
    assert!(own < 1.05 * letflow, "{own} {letflow}");
    assert_ne!(own, letflow);
}
