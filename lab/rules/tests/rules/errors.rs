//! Rule: each error in the book's tables of errors is one that a test provokes.
//!
//! A row of a table is known by what stands in its first cell. Here it has a test, and what in that test says
//! that it is about this very error.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{WORKSPACE, assert_none};

/// A row's words, its test, and what the test has of it.
type Provoked = (&'static str, &'static str, &'static str);

/// A table: its page, its head, and its rows.
struct Table {
    page: &'static str,
    head: &'static str,
    rows: &'static [Provoked],
}

const TABLES: [Table; 7] = [
    Table {
        page: "docs/src/how-to/border-router.md",
        head: "| symptom | |",
        rows: &SYMPTOMS,
    },
    Table {
        page: "docs/src/how-to/cloudburst.md",
        head: "| what you see | what it is |",
        rows: &SEEN,
    },
    Table {
        page: "docs/src/how-to/routes.md",
        head: "| reason | what it means | what to do |",
        rows: &UNSPLIT,
    },
    Table {
        page: "docs/src/reference/commands.md",
        head: "| code | meaning |",
        rows: &CODES,
    },
    Table {
        page: "docs/src/reference/cloudburst-commands.md",
        head: "| code | meaning |",
        rows: &CLOUDBURST_CODES,
    },
    Table {
        page: "docs/src/reference/cloudburst-commands.md",
        head: "| reason | what was refused |",
        rows: &REFUSED,
    },
    Table {
        page: "docs/src/reference/cloudburst-wire.md",
        head: "| reason | meaning |",
        rows: &FAILURES,
    },
];

#[rustfmt::skip]
const SYMPTOMS: [Provoked; 16] = [
    ("in conflict with what is not ours", "words_of_up_are_those_reviewed", "add_refusals"),
    ("the instance ... has table ..., too", "instance_with_the_tables_or_priorities_of_another_one_is_refused", "], 5)"),
    ("an instance whose state is not to be seen from here", "instance_in_a_container_of_the_same_network_namespace_is_noticed", "Some(5)"),
    ("the pins ... are of an instance ...", "instances_of_two_network_namespaces_do_not_take_each_others_pins", "in another network namespace"),
    ("replaced the kernel programs of another build", "earlier_programs_are_restored_with_their_flows_when_bringing_up_fails_after_them", "restored_with_their_flows"),
    ("has another XDP program attached", "foreign_xdp_program_is_named", "has another XDP program attached"),
    ("restored the earlier kernel programs", "earlier_programs_are_restored_with_their_flows_when_bringing_up_fails_after_them", "restored_with_their_flows"),
    ("the instance is held by the process ...", "second_instance_is_refused_and_the_first_one_named", "], 5)"),
    ("No space left on device", "full_disk_keeps_up_from_beginning_and_not_from_ending", "No space left"),
    ("NOT split", "agent_says_what_others_keep_from_being_split_while_they_do", "NOT split"),
    ("would leave by", "rule_that_takes_all_of_the_site_is_a_conflict", "would leave by"),
    ("/ready", "packets_go_as_the_machine_routes_them_while_all_tunnels_are_absent_at_the_start", "503"),
    ("not everything is in place", "rule_that_somebody_deletes_is_named_by_status", "not everything is in place"),
    ("a device is absent or down when the border boots", "tunnel_that_is_down_at_the_start_is_taken_once_it_is_up", "down"),
    ("the configuration is broken", "wrong_file_keeps_nobody_from_looking_and_taking_down", "down"),
    ("all else", "killed_agent_splits_on_and_down_cleans_up", "down"),
];

#[rustfmt::skip]
const SEEN: [Provoked; 10] = [
    ("no path reaches the peer", "a_typo_and_a_server_that_is_down_are_told_apart", "no path reaches the peer"),
    ("nobody answers requests there", "an_endpoint_that_only_asks_answers_at_once_that_nobody_is_there", "nobody answers requests there"),
    ("nothing was heard of the request", "words_of_ping_are_those_reviewed", "nobody answers"),
    ("refused somebody whose key does not fit ours", "a_wrong_key_is_in_the_servers_log", "refused somebody whose key does not fit ours"),
    ("is a public key", "words_of_serve_are_those_reviewed", "add_keys"),
    ("the peer had 1200 times no room for more messages", "perf_says_how_often_the_server_had_no_room", "no room for more messages"),
    ("the receiver was restarted, and may have taken it before or not", "what_a_receiver_may_have_handed_over_before_its_restart_is_unknown", "Reason::Unknown"),
    ("the budget of symbols is spent", "a_message_whose_symbols_are_used_up_is_abandoned_when_reports_say_that_it_is_not_there", "the budget of symbols is spent"),
    ("another process has it", "words_of_serve_are_those_reviewed", "a port in use"),
    ("cloudburst_send_drops_total", "what_is_reserved_above_the_interface_is_dropped_and_counted", "cloudburst_send_drops_total"),
];

#[rustfmt::skip]
const UNSPLIT: [Provoked; 5] = [
    ("specific_route", "route_of_the_main_table_by_the_other_tunnel_is_a_finding", "UnsplitReason::SpecificRoute"),
    ("rule", "rule_in_front_is_a_finding_by_its_number", "UnsplitReason::Rule"),
    ("no_next_hop", "family_without_next_hops_is_a_finding_unless_it_is_not_meant", "UnsplitReason::NoNextHop"),
    ("no_route", "route_that_is_taken_away_is_a_finding_of_its_class", "UnsplitReason::NoRoute"),
    ("dropped", "route_that_drops_is_a_finding_of_its_class", "UnsplitReason::Dropped"),
];

#[rustfmt::skip]
const CODES: [Provoked; 7] = [
    ("0", "new_flow_is_told_rule_route_and_next_hop_of_both_classes", "explain"),
    ("1", "rule_of_somebody_else_is_named_with_its_number_and_a_remedy", "1"),
    ("2", "agent_logs_an_event_and_a_record_on_each_line_in_every_form", "\"status\"], 2)"),
    ("3", "wrong_configuration_exits_with_3_and_names_the_line", "3"),
    ("4", "without_root_exits_with_4", "Some(4)"),
    ("5", "second_instance_is_refused_and_the_first_one_named", "], 5)"),
    ("6", "signal_ends_it_and_restores_what_ipv4_accepts", "Some(6)"),
];

#[rustfmt::skip]
const CLOUDBURST_CODES: [Provoked; 6] = [
    ("0", "ping_reports_times_and_serve_ends_at_ctrl_c", "Some(0)"),
    ("1", "with_another_key_nothing_is_answered", "Some(1)"),
    ("2", "a_wrong_command_line_exits_with_2_and_names_the_value", "Some(2)"),
    ("3", "wrong_settings_exit_with_3", "Some(3)"),
    ("4", "what_cannot_be_read_or_written_is_named", "Some(4)"),
    ("5", "a_port_in_use_exits_with_5", "Some(5)"),
];

#[rustfmt::skip]
const REFUSED: [Provoked; 22] = [
    ("malformed", "truncation", "refused.malformed > 0"),
    ("damaged", "corruption", "answers.damaged > 0"),
    ("unknown_key", "who_has_other_keys_is_reported_once", "unknown_key"),
    ("unknown_association", "what_is_carried_to_another_key_holder_is_refused", "unknown_association"),
    ("not_allowed", "who_is_not_on_the_list_is_not_heard", "not_allowed"),
    ("not_authentic", "keys_must_match", "refused.not_authentic > 0"),
    ("replayed", "duplication", "refused.replayed > 0"),
    ("unexpected", "a_message_is_delivered_by_the_stop_and_by_nothing_before_it_was_sent", "refused.unexpected, 1"),
    ("not_validated", "replayed_after_a_restart", "not_validated"),
    ("bad_token", "a_token_of_somebody_else_is_refused", "refused.bad_token), (None, 1)"),
    ("too_many_peers", "who_is_one_too_many_hears_it_in_two_round_trips_and_is_served_when_another_goes", "refused.too_many_peers"),
    ("not_accepting", "a_full_inbox_holds_up_senders_and_loses_nothing", "not_accepting"),
    ("too_many_messages", "a_peer_over_its_quota_is_told_to_try_again", "refused.too_many_messages, 1"),
    ("too_many_bytes", "no_room_to_the_end", "too_many_bytes"),
    ("message_too_large", "a_receiver_that_takes_less_refuses", "message_too_large"),
    ("bad_symbol", "a_symbol_without_the_codes_header_and_one_far_behind_are_counted_apart", "refused.bad_symbol, 1"),
    ("stale", "a_symbol_without_the_codes_header_and_one_far_behind_are_counted_apart", "refused.stale"),
    ("corrupt_message", "a_message_whose_check_does_not_fit_is_not_handed_over", "refused.corrupt_message, 1"),
    ("expired", "incomplete_messages_expire_and_free_their_memory", "expired"),
    ("answers_capped", "answers_beyond_the_cap_are_counted_and_datagrams_of_a_closed_socket_dropped", "answers_capped"),
    ("answers_over_budget", "a_flood_of_pings_leaves_most_of_the_link_to_own_messages", "answers_over_budget"),
    ("amplification_capped", "an_address_that_nothing_came_from_gets_no_answer", "refused.amplification_capped, 1"),
];

#[rustfmt::skip]
const FAILURES: [Provoked; 7] = [
    ("0", "a_reason_of_a_later_version_is_a_failure_still", "FailureReason::Unspecified"),
    ("1", "an_endpoint_that_only_asks_answers_at_once_that_nobody_is_there", "FailureReason::NoHandler"),
    ("2", "each_request_without_a_reply_is_answered_with_the_reason", "FailureReason::Refused"),
    ("3", "each_request_without_a_reply_is_answered_with_the_reason", "FailureReason::NoReply"),
    ("4", "a_handler_on_a_thread_that_panics_says_so", "FailureReason::Panicked"),
    ("5", "handlers_that_are_stopped_say_so", "FailureReason::Stopped"),
    ("6", "each_request_without_a_reply_is_answered_with_the_reason", "FailureReason::ReplyTooLarge"),
];

#[test]
fn each_error_of_the_books_tables_is_provoked_by_a_test() {
    let root = &WORKSPACE.root;
    let mut tests = BTreeMap::new();
    for directory in ["cloudburst", "splitter-agent"] {
        collect_tests(&root.join(directory), &mut tests);
    }
    let mut wrong = Vec::new();
    for Table { page, head, rows } in &TABLES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let cells = first_cells(&text, head);
        assert!(!cells.is_empty(), "{page}: no table {head}");
        for cell in &cells {
            if !rows.iter().any(|(words, ..)| is_about(cell, words)) {
                wrong.push(format!("{page}: {cell}: no test provokes it"));
            }
        }
        for (words, test, has) in *rows {
            if !cells.iter().any(|cell| is_about(cell, words)) {
                wrong.push(format!("{page}: no row about {words:?}"));
            }
            match tests.get(*test) {
                None => wrong.push(format!("{page}: {words}: there is no test {test}")),
                Some(bodies) if !bodies.iter().any(|body| body.contains(has)) => {
                    wrong.push(format!("{page}: {words}: {test} has no {has:?}"));
                }
                Some(_) => {}
            }
        }
    }
    assert_none("errors of the book's tables", &wrong);
}

/// A number or a name is all of a cell, words are part of one.
fn is_about(cell: &str, words: &str) -> bool {
    match words.contains(' ') || words.contains('/') || words.len() > 24 {
        true => cell.contains(words),
        false => cell.trim_matches('`') == words,
    }
}

/// The first cells of the rows below a head.
fn first_cells(page: &str, head: &str) -> Vec<String> {
    let Some((_, table)) = page.split_once(&format!("\n{head}\n")) else {
        return Vec::new();
    };
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    // The first line is the rule below the head.
    let cells = rows.skip(1).filter_map(|line| line.split('|').nth(1));
    cells.map(|cell| cell.trim().to_owned()).collect()
}

/// Tests by name, each with its text as far as its closing brace.
fn collect_tests(directory: &Path, tests: &mut BTreeMap<String, Vec<String>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_tests(&path, tests);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            for attribute in ["#[test]\n", "#[tokio::test"] {
                for (name, body) in source.split(attribute).skip(1).filter_map(test) {
                    tests.entry(name).or_default().push(body);
                }
            }
        }
    }
}

/// The name and text of the function that a piece of source begins with, behind its attributes.
fn test(part: &str) -> Option<(String, String)> {
    let (before, from) = part.split_once("fn ")?;
    let indent = before.lines().last().unwrap_or_default();
    let indent = &indent[..indent.len() - indent.trim_start().len()];
    let (name, _) = from.split_once('(')?;
    let body = from.split(&format!("\n{indent}}}\n")).next()?;
    Some((name.to_owned(), body.to_owned()))
}
