//! Pages of docs whose commands are run as they stand there.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::sources::root;

/// What stands before a block of commands that is run under this name.
const RUN: &str = "<!-- run: ";

/// What stands before one that is not run, and why.
const NOT_RUN: &str = "<!-- not run: ";

/// A block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The name that it is run under, or why it is not run.
    pub run: Result<String, String>,
    /// The commands.
    pub commands: String,
}

/// Languages of blocks that are no commands.
const OTHERS: [&str; 3] = ["json", "text", "yaml"];

/// All blocks of commands of a document, in their order.
#[derive(Debug, Clone)]
pub struct Guide {
    text: String,
    blocks: Vec<Block>,
}

impl Guide {
    /// Reads docs/install.md.
    pub fn read() -> Result<Self> {
        Self::page("docs/install.md")
    }

    /// Reads a page of this repository.
    pub fn page(path: &str) -> Result<Self> {
        let path = root().join(path);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Self::of(&text)
    }

    /// The blocks of a text. A block of commands without a mark before it is an error, because nothing would run it; so is a block in a
    /// language that may be that of commands, which is `sh`.
    pub fn of(text: &str) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut lines = text.lines();
        let mut mark = None;
        while let Some(line) = lines.next() {
            if let Some(language) = line.trim().strip_prefix("```") {
                let commands: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
                let commands = commands.join("\n");
                if OTHERS.contains(&language) {
                    continue;
                }
                ensure!(
                    language == "sh",
                    "commands are in blocks of language `sh`, not {language:?}:\n{commands}"
                );
                let run = mark.take().with_context(|| {
                    format!(
                        "no line `{RUN}NAME -->` or `{NOT_RUN}REASON -->` before the commands\n{commands}"
                    )
                })?;
                blocks.push(Block { run, commands });
                continue;
            }
            let marked = |begin: &str| {
                let rest = line.trim().strip_prefix(begin)?;
                rest.strip_suffix(" -->").map(str::to_owned)
            };
            mark = marked(RUN).map(Ok).or_else(|| marked(NOT_RUN).map(Err));
        }
        ensure!(!blocks.is_empty(), "a document without commands");
        Ok(Self {
            text: text.to_owned(),
            blocks,
        })
    }

    /// Whether the page contains this text.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// All blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The commands of the blocks of this name, one after the other.
    pub fn commands(&self, name: &str) -> Result<String> {
        let named = self
            .blocks
            .iter()
            .filter(|block| block.run.as_deref() == Ok(name))
            .map(|block| block.commands.as_str());
        let commands: Vec<&str> = named.collect();
        ensure!(!commands.is_empty(), "the page has no commands `{RUN}{name} -->`");
        Ok(commands.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_named_by_the_line_before_them() {
        let text = "a\n<!-- run: one -->\n```sh\nx\ny\n```\n<!-- not run: no image -->\n```sh\nz\n```\n```yaml\nq: 1\n```\n<!-- run: one -->\n```sh\nw\n```\n";
        let guide = Guide::of(text).unwrap();
        assert_eq!(guide.blocks().len(), 3);
        assert_eq!(guide.commands("one").unwrap(), "x\ny\nw");
        assert_eq!(guide.blocks()[1].run, Err("no image".to_owned()));
        assert!(guide.commands("two").is_err());
    }

    #[test]
    fn commands_that_nothing_runs_are_refused() {
        let error = Guide::of("<!-- run: one -->\n\n```sh\nx\n```\n").unwrap_err();
        assert!(error.to_string().contains("no line"), "{error}");
    }

    #[test]
    fn commands_in_another_language_are_refused() {
        for language in ["", "bash", "console"] {
            let error = Guide::of(&format!("<!-- run: one -->\n```{language}\nx\n```\n")).unwrap_err();
            assert!(error.to_string().contains("`sh`"), "{error}");
        }
    }

    #[test]
    fn a_test_asks_for_each_mark_of_the_pages() {
        let of_install = [
            "real/install.rs",
            "real/install_gates.rs",
            "real/install_wrong.rs",
            "scenarios/image.rs",
        ];
        asks_for_each_mark("docs/install.md", &of_install);
        asks_for_each_mark("docs/gates.md", &["real/install_gates.rs"]);
        asks_for_each_mark("docs/gitops.md", &["scenarios/gitops.rs"]);
        asks_for_each_mark("docs/how-to/cancel.md", &["scenarios/rolled_back.rs"]);
        asks_for_each_mark("docs/how-to/roll-back.md", &["scenarios/rolled_back.rs"]);
        asks_for_each_mark("docs/how-to/override.md", &["scenarios/overrides.rs"]);
    }

    fn asks_for_each_mark(page: &str, tests: &[&str]) {
        let read = |test: &&str| fs::read_to_string(root().join("tests/tests").join(test)).unwrap();
        let tests: Vec<String> = tests.iter().map(read).collect();
        for block in Guide::page(page).unwrap().blocks() {
            if let Ok(mark) = &block.run {
                let named = format!("\"{mark}\"");
                // Comparisons and names of files run nothing.
                let runs =
                    |line: &str| line.contains(&named) && !line.contains("==") && !line.contains(".join(");
                assert!(
                    tests.iter().flat_map(|test| test.lines()).any(runs),
                    "no test runs the commands `{RUN}{mark} -->` of {page}"
                );
            }
        }
    }
}
