//! What the committed object executes, beside what is recorded.

use std::fs;

use instructions::{Counts, Record};

use crate::{in_tree, objects};

#[test]
fn committed_programs_execute_no_more_than_is_recorded() {
    let counted = Record::count(&objects()).unwrap_or_else(|error| panic!("{error}"));
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
    let objects = objects();
    for path in instructions::paths::all().into_iter().step_by(9) {
        let [one, other] = [(); 2].map(|()| path.count(&objects).expect("takes its path"));
        assert_eq!(one, other, "{}", path.name);
    }
}

/// Each of a known flow's packets is counted and marked without a line that other cores write.
#[test]
fn known_flows_bind_no_cores_together() {
    let recorded = Record::read(&in_tree(instructions::RECORD)).expect("can be read");
    let of = |name: &str| recorded.0[name];
    for path in [
        "known_long",
        "known_short",
        "rated_known_short",
        "redirect_known_long",
    ] {
        for (name, counts) in recorded.0.iter().filter(|(name, _)| name.starts_with(path)) {
            let is_of_a_queue = name.ends_with("_idle") || name.ends_with("_shared");
            assert!(counts.shared_lines == 0 || is_of_a_queue, "{name}");
            assert!(counts.flow_lines > 0, "{name}");
        }
    }
    // What begins a queue anew, and what each packet is put into.
    assert!(of("rated_known_short_v4_idle").shared_lines > 0);
    assert!(of("tr_4_known_long_v4").shared_lines > 0);
}

#[test]
fn page_has_the_counts_that_are_recorded() {
    let recorded = Record::read(&in_tree(instructions::RECORD)).expect("can be read");
    let page = fs::read_to_string(in_tree("docs/src/reference/cost.md")).expect("can be read");
    let mut rows = 0;
    for row in page
        .lines()
        .filter(|it| it.starts_with("| of ") || it.starts_with("| the first "))
    {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, _, path, instructions, lines, ..] = cells[..] else {
            continue;
        };
        let Some(path) = path.strip_prefix('`').and_then(|it| it.strip_suffix('`')) else {
            continue;
        };
        let Counts {
            instructions: counted,
            shared_lines,
            ..
        } = recorded.0[path];
        assert_eq!(instructions.replace(',', ""), counted.to_string(), "{path}");
        assert_eq!(lines, shared_lines.to_string(), "{path}");
        rows += 1;
    }
    assert!(rows > 15, "{rows} rows");
}
