//! Command lines in blocks of shell, as far as pages write them.
//!
//! Words are split as a shell does, and what stands between `|`, `&&` and `;` are commands. Values that a
//! shell would put in are left as they stand.

use crate::pages::Block;

/// One command with its arguments, and the line of the page that it begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Number of the line in its page.
    pub line: usize,
    /// The program and its arguments, without `sudo` and what is set in the environment.
    pub words: Vec<String>,
}

/// Tells blocks that show commands from all others.
pub fn is_shell(block: &Block) -> bool {
    ["sh", "console"].contains(&&*block.language)
}

/// Reads the commands of a block of `sh`, or of those lines of a `console` that have a prompt.
///
/// # Errors
/// The line at which quotes do not end.
pub fn commands(block: &Block) -> Result<Vec<CommandLine>, usize> {
    let mut commands = Vec::new();
    let mut lines = block.text.lines().enumerate();
    while let Some((number, text)) = lines.next() {
        let number = block.line + number;
        let text = match (&*block.language, text.strip_prefix("$ ")) {
            ("console", None) => continue,
            (_, Some(text)) => text,
            (_, None) => text,
        };
        let mut text = text.to_owned();
        // Quotes that do not end and a backslash both go on in the next line.
        let words = loop {
            let is_continued = text.ends_with('\\') && text.pop().is_some();
            match shlex::split(&text) {
                Some(words) if !is_continued => break words,
                _ => match lines.next() {
                    Some((_, next)) => text = format!("{text}\n{next}"),
                    None => return Err(number),
                },
            }
        };
        if let Some(end) = here_document(&text) {
            lines.by_ref().find(|(_, text)| text.trim() == end);
        }
        let each = words.split(|word| ["|", "||", "&&", ";", "&"].contains(&&**word));
        let each = each.map(simple).filter(|words| !words.is_empty());
        commands.extend(each.map(|words| CommandLine {
            line: number,
            words,
        }));
    }
    Ok(commands)
}

/// The word that ends a document of which `cat <<EOF` is the beginning.
fn here_document(text: &str) -> Option<String> {
    let rest = text.split("<<").nth(1)?;
    let word = rest
        .trim_start_matches(['-', ' '])
        .split_whitespace()
        .next()?;
    Some(word.trim_matches(['\'', '"']).to_owned())
}

/// Takes off what runs a command as somebody else, in another place, or with its output elsewhere.
fn simple(words: &[String]) -> Vec<String> {
    let mut rest = words;
    loop {
        let assigns = |word: &str| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|it| it == '_' || it.is_alphanumeric()))
        };
        rest = match rest {
            [sudo, more @ ..] if sudo == "sudo" => {
                let options = more.iter().take_while(|word| word.starts_with('-')).count();
                &more[options..]
            }
            [time, more @ ..] if time == "time" || time == "env" => more,
            [ip, netns, exec, _, more @ ..]
                if (&**ip, &**netns, &**exec) == ("ip", "netns", "exec") =>
            {
                more
            }
            [first, more @ ..] if assigns(first) => more,
            _ => break,
        };
    }
    let mut simple = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let redirection = word.trim_start_matches(|it: char| it.is_ascii_digit() || it == '&');
        match redirection.strip_prefix(['>', '<']) {
            None => simple.push(word.trim_end_matches(';').to_owned()),
            Some(target) if target.trim_start_matches(['>', '<']).is_empty() => {
                words.next();
            }
            Some(_) => {}
        }
    }
    simple
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(language: &str, text: &str) -> Vec<(usize, String)> {
        let block = Block {
            line: 10,
            language: language.into(),
            text: text.into(),
            not_run: None,
            not_compared: None,
            follows: false,
        };
        let commands = commands(&block).unwrap().into_iter();
        commands.map(|it| (it.line, it.words.join(" "))).collect()
    }

    #[test]
    fn commands_stand_between_operators_and_without_who_runs_them() {
        let text = "splitter check && sudo -E A=b splitter plan 2>&1 | jq '.a | .b' # why\n\
                    sudo ip netns exec a splitter \\\n  top > /tmp/x\n\
                    cat > /etc/x <<EOF\nsplitter gone\nEOF\nsplitter down";
        let expected = [
            (10, "splitter check"),
            (10, "splitter plan"),
            (10, "jq .a | .b"),
            (11, "splitter top"),
            (13, "cat"),
            (16, "splitter down"),
        ];
        let expected = expected.map(|(line, words)| (line, words.to_owned()));
        assert_eq!(read("sh", text), expected);
    }

    #[test]
    fn output_on_a_console_is_no_command() {
        let text = "$ splitter status\nsplitter: up\n$ curl x\n";
        let expected = [(10, "splitter status".into()), (12, "curl x".into())];
        assert_eq!(read("console", text), expected);
    }
}
