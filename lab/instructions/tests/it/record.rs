//! What the committed object executes, beside what is recorded.

use instructions::Record;

use crate::{in_tree, object};

#[test]
fn committed_programs_execute_no_more_than_is_recorded() {
    let counted = Record::count(&object()).unwrap_or_else(|error| panic!("{error}"));
    let recorded = Record::read(&in_tree(instructions::RECORD)).expect("can be read");
    let judgement = recorded.judge(&counted);
    if let Some(complaint) = judgement.complaint() {
        panic!("{complaint}");
    }
    for gain in &judgement.gains {
        println!("less than recorded: {gain}");
    }
}

#[test]
fn counts_are_the_same_in_each_run() {
    let object = object();
    for path in instructions::paths::all().into_iter().step_by(9) {
        let [one, other] = [(); 2].map(|()| path.count(&object).expect("takes its path"));
        assert_eq!(one, other, "{}", path.name);
    }
}
