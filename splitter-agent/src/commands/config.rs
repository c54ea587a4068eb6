//! `splitter config`: what the declarations of the configuration's keys say.

use flow_cli::{print, print_json};

use crate::cli::ConfigCommand;

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Schema => print_json(&splitter_config::schema()),
        ConfigCommand::Example => print(splitter_config::example().trim_end()),
    }
}
