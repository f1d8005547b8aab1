//! The product's own code, as tokens: without comments, texts and tests.

use std::path::{Path, PathBuf};

use crate::root;

/// Where the product's code lies.
const ROOTS: [&str; 4] = [
    "crds/src",
    "extension/core/src",
    "extension/hooks/src",
    "extension/src",
];

/// What stands before an item that only tests have.
const TEST_ONLY: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// One file of the product.
#[derive(Clone)]
pub(crate) struct Source {
    /// Below `extension/src`, or else below `extension` or the root of the repository, as documents name it.
    pub(crate) path: String,
    pub(crate) tokens: Vec<String>,
}

impl Source {
    pub(crate) fn of(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            tokens: without_tests(&tokens(text)).0,
        }
    }

    /// How often a sequence of tokens occurs, written with spaces between them.
    pub(crate) fn count(&self, sequence: &str) -> usize {
        let sequence: Vec<&str> = sequence.split(' ').collect();
        let windows = self.tokens.windows(sequence.len());
        windows.filter(|window| *window == sequence).count()
    }
}

/// Every file that is not of tests alone.
pub(crate) fn of_product() -> Vec<Source> {
    let mut files = Vec::new();
    for directory in ROOTS {
        collect(&root().join(directory), &mut files);
    }
    let read: Vec<(PathBuf, Vec<String>, Vec<PathBuf>)> = files
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).expect("read a source");
            let (tokens, modules) = without_tests(&tokens(&text));
            let modules = modules.iter().map(|name| module(&file, name)).collect();
            (file, tokens, modules)
        })
        .collect();
    let of_tests: Vec<&PathBuf> = read.iter().flat_map(|(_, _, modules)| modules).collect();
    read.iter()
        .filter(|(file, _, _)| {
            let path = file.with_extension("");
            !of_tests.iter().any(|module| path.starts_with(module))
        })
        .map(|(file, tokens, _)| Source {
            path: shown(file),
            tokens: tokens.clone(),
        })
        .collect()
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("list the sources") {
        let path = entry.expect("read a directory").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn shown(file: &Path) -> String {
    let path = file.strip_prefix(root()).expect("a path below the root");
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
        file.parent().expect("a directory").to_owned()
    } else {
        file.with_extension("")
    };
    directory.join(name)
}

/// Identifiers, `::`, and all other characters one by one.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let is_word = |at: usize| text.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let begins = |at: usize, with: &str| {
        with.chars()
            .enumerate()
            .all(|(i, c)| text.get(at + i) == Some(&c))
    };
    let mut found = Vec::new();
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
                found.push(word);
            }
        } else if begins(at, "::") {
            found.push("::".to_owned());
            at += 2;
        } else {
            if !text[at].is_whitespace() {
                found.push(text[at].to_string());
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

/// The tokens without items of tests, and the names of modules in files of their own that only tests have.
fn without_tests(all: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < all.len() {
        if !all[at..].iter().take(TEST_ONLY.len()).eq(TEST_ONLY.iter()) {
            kept.push(all[at].clone());
            at += 1;
            continue;
        }
        at += TEST_ONLY.len();
        let mut depth = 0_i32;
        while at < all.len() {
            match all[at].as_str() {
                "mod" if depth == 0 && all.get(at + 2).is_some_and(|next| next == ";") => {
                    modules.push(all[at + 1].clone());
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            at += 1;
            let last = all[at - 1].as_str();
            if depth == 0 && [";", "}"].contains(&last) {
                break;
            }
        }
    }
    (kept, modules)
}

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
    let (_, modules) = without_tests(&tokens("#[cfg(test)] pub(crate) mod world; mod real;"));
    assert_eq!(modules, ["world"]);
}
