//! The words of each task's help, one snapshot a task.

use std::path::Path;

use clap::CommandFactory as _;

use crate::Arguments;

#[test]
fn words_of_each_task_are_those_reviewed() {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut program = Arguments::command().term_width(100);
    program.build();
    let help = program.render_long_help().to_string();
    settings.bind(|| insta::assert_snapshot!("xtask", without_trailing_spaces(&help)));
    for task in program.get_subcommands_mut() {
        if task.get_name() == "help" {
            continue;
        }
        let name = task.get_name().to_owned();
        let help = without_trailing_spaces(&task.render_long_help().to_string());
        settings.bind(|| insta::assert_snapshot!(name, help));
    }
}

fn without_trailing_spaces(help: &str) -> String {
    help.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}
