//! The product's own code, as tokens: without comments, texts and tests.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Where the product's code lies.
const ROOTS: [&str; 6] = [
    "crds/src",
    "extension/cli/src",
    "extension/core/src",
    "extension/hooks/src",
    "extension/status/src",
    "extension/src",
];

/// What stands before an item that only tests have.
const TEST_ONLY: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// One file of the product.
#[derive(Clone)]
pub struct Source {
    /// Below `extension/src`, or else below `extension` or the root of the repository, as documents name it.
    pub path: String,
    /// Its code.
    pub tokens: Vec<String>,
    /// Its lines with comments and empty ones, without items that only tests have.
    pub lines: usize,
}

impl Source {
    /// A file with this content.
    #[must_use]
    pub fn of(path: &str, text: &str) -> Self {
        Read::of(text).named(path)
    }

    /// How often a sequence of tokens occurs, written with spaces between them.
    #[must_use]
    pub fn count(&self, sequence: &str) -> usize {
        let sequence: Vec<&str> = sequence.split(' ').collect();
        let windows = self.tokens.windows(sequence.len());
        windows.filter(|window| *window == sequence).count()
    }
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Every file that is not of tests alone.
pub fn of_product() -> anyhow::Result<Vec<Source>> {
    let mut files = Vec::new();
    for directory in ROOTS {
        collect(&root().join(directory), &mut files)?;
    }
    let read: Vec<(PathBuf, Read)> = files
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            Ok((file, Read::of(&text)))
        })
        .collect::<anyhow::Result<_>>()?;
    let modules = |(file, read): &(PathBuf, Read)| -> Vec<PathBuf> {
        read.modules.iter().map(|name| module(file, name)).collect()
    };
    let of_tests: Vec<PathBuf> = read.iter().flat_map(modules).collect();
    let of_product = read.into_iter().filter(|(file, _)| {
        let path = file.with_extension("");
        !of_tests.iter().any(|module| path.starts_with(module))
    });
    Ok(of_product.map(|(file, read)| read.named(&shown(&file))).collect())
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

fn shown(file: &Path) -> String {
    let root = root();
    let path = file.strip_prefix(root).unwrap_or(file);
    let below = path
        .strip_prefix("extension/src")
        .or_else(|_| path.strip_prefix("extension"))
        .unwrap_or(path);
    below.display().to_string()
}

/// The path without extension that a module declared in `file` has.
fn module(file: &Path, name: &str) -> PathBuf {
    let is_root = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .any(|root| file.ends_with(root));
    let directory = if is_root {
        file.parent().unwrap_or(file).to_owned()
    } else {
        file.with_extension("")
    };
    directory.join(name)
}

struct Token {
    text: String,
    /// The number of its line, from 0 on.
    line: usize,
}

/// Identifiers, `::`, and all other characters one by one.
fn tokens(text: &str) -> Vec<Token> {
    let text: Vec<char> = text.chars().collect();
    let is_word = |at: usize| text.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let begins = |at: usize, with: &str| {
        with.chars()
            .enumerate()
            .all(|(i, c)| text.get(at + i) == Some(&c))
    };
    let (mut found, mut counted, mut line) = (Vec::new(), 0, 0);
    let mut add = |token: String, at: usize| {
        line += text[counted..at].iter().filter(|c| **c == '\n').count();
        counted = at;
        found.push(Token { text: token, line });
    };
    let mut at = 0;
    while at < text.len() {
        if begins(at, "//") {
            while at < text.len() && text[at] != '\n' {
                at += 1;
            }
        } else if begins(at, "/*") {
            let mut depth = 0;
            loop {
                if begins(at, "/*") {
                    depth += 1;
                    at += 2;
                } else if begins(at, "*/") {
                    depth -= 1;
                    at += 2;
                } else {
                    at += 1;
                }
                if depth == 0 || at >= text.len() {
                    break;
                }
            }
        } else if text[at] == '"' {
            at = after_text(&text, at);
        } else if text[at] == '\'' {
            // A character, or the name of a lifetime.
            at = match (text.get(at + 1), text.get(at + 2)) {
                (Some('\\'), _) => (at + 3..text.len())
                    .find(|i| text[*i] == '\'')
                    .map_or(text.len(), |i| i + 1),
                (_, Some('\'')) => at + 3,
                _ => at + 1,
            };
        } else if is_word(at) {
            let begin = at;
            while is_word(at) {
                at += 1;
            }
            let word: String = text[begin..at].iter().collect();
            let hashes = (at..text.len()).take_while(|i| text[*i] == '#').count();
            if ["r", "br", "cr"].contains(&word.as_str()) && begins(at + hashes, "\"") {
                let end = format!("\"{}", "#".repeat(hashes));
                at = (at + hashes + 1..text.len())
                    .find(|i| begins(*i, &end))
                    .map_or(text.len(), |i| i + end.len());
            } else if !["b", "c"].contains(&word.as_str()) || !begins(at, "\"") {
                add(word, begin);
            }
        } else if begins(at, "::") {
            add("::".to_owned(), at);
            at += 2;
        } else {
            if !text[at].is_whitespace() {
                add(text[at].to_string(), at);
            }
            at += 1;
        }
    }
    found
}

/// Where a text that begins at `at` has ended.
fn after_text(text: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Text of a file.
struct Read {
    tokens: Vec<String>,
    lines: usize,
    /// Modules in files of their own that only tests have.
    modules: Vec<String>,
}

impl Read {
    fn of(text: &str) -> Self {
        let all = tokens(text);
        let mut read = Self {
            tokens: Vec::new(),
            lines: text.lines().count(),
            modules: Vec::new(),
        };
        let mut at = 0;
        while at < all.len() {
            let next = all[at..].iter().map(|token| token.text.as_str());
            if !next.take(TEST_ONLY.len()).eq(TEST_ONLY) {
                read.tokens.push(all[at].text.clone());
                at += 1;
                continue;
            }
            let begin = at;
            at += TEST_ONLY.len();
            let mut depth = 0_i32;
            while at < all.len() {
                match all[at].text.as_str() {
                    "mod" if depth == 0 && all.get(at + 2).is_some_and(|next| next.text == ";") => {
                        read.modules.push(all[at + 1].text.clone());
                    }
                    "{" | "(" | "[" => depth += 1,
                    "}" | ")" | "]" => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 && [";", "}"].contains(&all[at - 1].text.as_str()) {
                    break;
                }
            }
            read.lines -= all[at - 1].line + 1 - all[begin].line;
        }
        read
    }

    fn named(self, path: &str) -> Source {
        Source {
            path: path.to_owned(),
            tokens: self.tokens,
            lines: self.lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_and_tests_are_no_code() {
        let source = Source::of(
            "a.rs",
            r##"
        // Client
        /* Client /* Client */ Client */
        fn f<'a>(x: &'a str) -> char { let _ = ("Client \" Client", r#"Client " Client"#, b"Client"); '"' }
        #[cfg(test)]
        pub(crate) fn g() { [Client; 1]; }
        #[cfg(test)]
        mod tests { use super::Client; }
        #[cfg(not(test))]
        type Kept = kube::Client;
        fn last() {}
        "##,
        );
        assert_eq!(source.count("Client"), 1, "{:?}", source.tokens);
        assert_eq!(source.count("kube :: Client"), 1);
        assert_eq!(source.count("fn last ( ) { }"), 1);
        let read = Read::of("#[cfg(test)] pub(crate) mod world; mod real;");
        assert_eq!(read.modules, ["world"]);
    }

    #[test]
    fn lines_of_tests_are_not_counted() {
        let text = "//! A file.\n\nfn f() {\n    \"a\n\";\n}\n";
        assert_eq!(Source::of("a.rs", text).lines, 6);
        let tests = "\n#[cfg(test)]\nmod tests {\n    // One.\n    fn g() {}\n}\n";
        assert_eq!(Source::of("a.rs", &format!("{text}{tests}")).lines, 7);
        assert_eq!(
            Source::of("a.rs", &format!("{text}{tests}fn h() {{}}\n")).lines,
            8
        );
        let declared = "#[cfg(test)]\nmod tests;\n";
        assert_eq!(Source::of("a.rs", &format!("{text}{declared}")).lines, 6);
    }
}
