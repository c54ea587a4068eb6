//! Of the product's ten thousand scenarios, those of the paper's format.

use crate::simulation::{run::run, scenario::Scenario};

#[test]
fn scenarios_of_the_papers_format() {
    let scenarios = (0..10_000).map(Scenario::generate);
    let ran = scenarios.filter(Scenario::is_paper).map(run).count();
    assert!(ran > 300, "{ran} scenarios were run");
}
