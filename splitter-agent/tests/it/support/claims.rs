//! Laws about real time that tests in namespaces claim, each with its twin in virtual time.

use std::time::Duration;

use flow_testbed::timed::{Bounds, Claim};

/// A class or a flow that leaves a dead tunnel within a second.
pub(crate) const FAILOVER_IN_TIME: Claim = Claim {
    law: "a class leaves a dead tunnel within a second",
    twin: "silence_makes_a_suspect_and_then_a_dead_tunnel",
    bounds: Bounds::DEFAULT,
};

/// An agent goes on where an earlier one was killed.
pub(crate) const TAKES_OVER: Claim = Claim {
    law: "an agent keeps what an earlier one has moved while it has not heard of a tunnel",
    twin: "start_is_patient",
    bounds: Bounds::DEFAULT,
};

/// A tunnel that loses packets stays up.
pub(crate) const LOSSY_STAYS_UP: Claim = Claim {
    law: "a lossy tunnel keeps its class",
    twin: "lossy_links_never_go_down",
    bounds: Bounds::DEFAULT,
};

/// A tunnel that flaps takes few moves.
pub(crate) const FLAPPING_MOVES_LITTLE: Claim = Claim {
    law: "a flapping tunnel takes few moves",
    twin: "link_that_flaps_a_hundred_times_takes_one_turn",
    bounds: Bounds::DEFAULT,
};

/// An agent that stood still judges nothing by that time.
pub(crate) const STOPPED_AGENT_MOVES_NOTHING: Claim = Claim {
    law: "an agent that was stopped takes no tunnel for dead",
    twin: "standing_still_is_no_silence",
    bounds: Bounds::DEFAULT,
};

/// A peer that ends its agent leaves the tunnels up.
pub(crate) const PEER_MAY_END: Claim = Claim {
    law: "a peer whose agent ends does not condemn the tunnels",
    twin: "peer_whose_agent_ended_leaves_the_judgement_to_the_neighbour",
    bounds: Bounds::DEFAULT,
};

/// Flows that turn long are placed as often as the rates say.
pub(crate) const PLACED_BY_RATE: Claim = Claim {
    law: "long flows are placed by rate, and none in a dead tunnel",
    twin: "long_flows_are_placed_by_rate_and_none_in_a_tunnel_that_is_down",
    bounds: Bounds {
        // A flow is placed in the 30 ms that it pauses.
        late: Duration::from_millis(15),
        ..Bounds::DEFAULT
    },
};

/// A flow that is handed over keeps its order.
pub(crate) const HANDED_OVER_IN_ORDER: Claim = Claim {
    law: "a hand-over keeps a flow in order",
    twin: "no_packet_reaches_the_far_border_out_of_order",
    bounds: Bounds::PACKETS,
};

/// Cloudburst leaves the long class its part.
pub(crate) const CLOUDBURST_LEAVES_THE_REST: Claim = Claim {
    law: "Cloudburst without end leaves three quarters to the long class",
    twin: "cloudburst_takes_its_quarter_at_most_and_nothing_of_other_classes",
    bounds: Bounds::PACKETS,
};

/// A hub with many sites comes up soon.
pub(crate) const HUB_COMES_UP: Claim = Claim {
    law: "fifty sites of two tunnels are up and verified within two seconds",
    twin: "time_grows_with_the_routes_and_not_with_their_square",
    bounds: Bounds::DEFAULT,
};
