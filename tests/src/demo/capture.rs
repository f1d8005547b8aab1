//! `docs/img/demo.svg`: the demo as a terminal shows it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anstyle_svg::{Term, WIN10_CONSOLE};
use anyhow::{Context as _, Result, ensure};
use nix::pty::{Winsize, openpty};
use textwrap::{Options, WordSplitter};

/// Columns of the pseudo-terminal, and longest line of the picture.
const COLUMNS: usize = 100;

/// Most lines of the picture.
const LINES: usize = 40;

/// First line of the picture: the start of the upgrade.
const FIRST: &str = "Setting topology.version";

/// First line of the summary, which repeats the lines before except for its verdict.
const SUMMARY: &str = "Upgrade v";
const VERDICT: &str = "  order ";

/// Lines that are left out, because the picture would be too long: starts of runs.
const LEFT_OUT: &str = " works on ";

/// Column at which a story line has its text.
const INDENT: usize = 40;

/// Colours on a light background. Without a media query, viewers show the dark ones.
const LIGHT: &str = "    @media (prefers-color-scheme: light) {
      .fg { fill: #1f2328 }
      .bg { fill: #f6f8fa }
      .fg-green { fill: #1a7f37 }
      .fg-yellow { fill: #9a6700 }
      .fg-red { fill: #cf222e }
    }
";

/// Runs the demo on a pseudo-terminal and writes the picture.
pub(super) fn capture() -> Result<()> {
    let output = run()?;
    let shown = select(&output);
    let lines = shown.lines().count();
    ensure!(
        (1..=LINES).contains(&lines),
        "{lines} lines from {FIRST:?} on; the picture has 1 to {LINES}"
    );
    let picture = Term::new().palette(WIN10_CONSOLE).render_svg(&shown);
    let picture = picture.replacen("  </style>", &format!("{LIGHT}  </style>"), 1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/img/demo.svg");
    fs::create_dir_all(path.parent().context("a path without a directory")?)?;
    fs::write(&path, picture).with_context(|| format!("write {}", path.display()))
}

/// Runs the demo and returns what it prints on a terminal, without the lines of its spinner. Prints it as well.
fn run() -> Result<String> {
    let size = Winsize {
        ws_row: 50,
        ws_col: u16::try_from(COLUMNS)?,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).context("open a pseudo-terminal")?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("run")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(pty.slave.try_clone()?)
        .stderr(Stdio::inherit())
        .spawn()
        .context("start the demo")?;
    drop(pty.slave);
    let mut text = String::new();
    for line in BufReader::new(File::from(pty.master)).split(b'\n') {
        // Linux reports the end of a pseudo-terminal as an error.
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line);
        let line = without_spinner(&line);
        // Without a reader the capture goes on.
        drop(writeln!(std::io::stdout(), "{line}"));
        text.push_str(line);
        text.push('\n');
    }
    let status = child.wait()?;
    ensure!(status.success(), "the demo has failed ({status})");
    Ok(text)
}

/// The spinner is erased before a line is printed.
fn without_spinner(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit_once("\u{1b}[2K").map_or(line, |(_, line)| line)
}

/// The lines of the upgrade and the verdict, wrapped.
fn select(output: &str) -> String {
    let from = output.lines().skip_while(|line| !line.contains(FIRST));
    let upgrade = from.take_while(|line| !line.contains(SUMMARY));
    let verdict = output.lines().filter(|line| line.contains(VERDICT));
    let lines = upgrade.chain(verdict).filter(|line| !line.contains(LEFT_OUT));
    let wrapped: Vec<String> = lines.map(wrap).collect();
    wrapped.join("\n")
}

fn wrap(line: &str) -> String {
    let indent = " ".repeat(INDENT);
    let options = Options::new(COLUMNS)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(line, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::minor;
    use crate::scenario::VERSIONS;

    /// Lines of the committed picture, without markup.
    fn committed() -> Vec<String> {
        let picture = include_str!("../../../docs/img/demo.svg");
        let lines = picture.lines().map(str::trim_start);
        let lines = lines.filter(|line| line.starts_with("<tspan x="));
        lines
            .map(|line| {
                let parts = line.split('<');
                let plain = parts.map(|part| part.split_once('>').map_or("", |(_, plain)| plain));
                plain.collect::<String>().replace("&gt;", ">")
            })
            .collect()
    }

    #[test]
    fn the_picture_shows_the_versions_of_the_stack() {
        let lines = committed().join("\n");
        let shown: Vec<&str> = lines
            .split(|character: char| !character.is_ascii_alphanumeric() && character != '.')
            .filter(|word| word.starts_with("v1.") && minor(word) != *word)
            .collect();
        assert!(!shown.is_empty(), "no versions in docs/img/demo.svg");
        let others: Vec<&&str> = shown.iter().filter(|word| !VERSIONS.contains(*word)).collect();
        assert!(
            others.is_empty(),
            "`make capture` is due: {others:?} are not among {VERSIONS:?}"
        );
        assert!(lines.contains(&format!("{FIRST} to {}", VERSIONS[2])));
    }

    #[test]
    fn the_picture_fits() {
        let lines = committed();
        let longest = lines.iter().map(|line| line.chars().count()).max();
        assert!(
            lines.len() <= LINES && longest <= Some(COLUMNS),
            "{} lines, {longest:?} columns",
            lines.len()
        );
    }

    #[test]
    fn a_long_line_is_wrapped_at_its_text_and_a_spinner_is_removed() {
        let line = format!(
            "\r\u{1b}[2K  ⠁ waits\r\u{1b}[2K{}{}\r",
            " ".repeat(INDENT),
            "word ".repeat(20)
        );
        let wrapped = wrap(without_spinner(&line));
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines
                .iter()
                .all(|line| line.len() <= COLUMNS && line.find("word") == Some(INDENT))
        );
    }
}
