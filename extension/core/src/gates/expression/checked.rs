//! Rules for the text and the syntax tree of an expression. What they do not name is refused.

use cel::{
    common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators},
    parser::{
        PrattParser,
        pratt_parser::{Lexer, TokenKind},
    },
};

use super::{Variable, pattern::Pattern};
use crate::text::one_line;

/// Longest text, in bytes.
pub(super) const LONGEST: usize = 2048;

/// Most nodes of a syntax tree, after the expansion of macros.
pub(super) const MAX_NODES: usize = 300;

/// Most macros within each other that go through a list.
const MAX_LOOPS: usize = 2;

/// Deepest syntax tree. Evaluation and deallocation call themselves for each level.
const MAX_DEPTH: usize = 64;

/// Most brackets and other calls of the parser to itself within each other.
const MAX_NESTING: u16 = 32;

/// Most signs of a text. Each level of a syntax tree needs one, or the word `in`, so that this limits also trees that are refused for
/// their depth.
const MAX_SIGNS: usize = 1024;

/// Most regular expressions of a text.
const MAX_PATTERNS: usize = 8;

/// Longest problem in a message, in characters.
const LONGEST_PROBLEM: usize = 256;

/// Functions beside operators: name, whether it is called on its first argument, number of further arguments.
const FUNCTIONS: &[(&str, bool, usize)] = &[
    ("size", false, 1),
    ("int", false, 1),
    ("uint", false, 1),
    ("double", false, 1),
    ("string", false, 1),
    ("bool", false, 1),
    ("dyn", false, 1),
    ("type", false, 1),
    ("size", true, 0),
    ("contains", true, 1),
    ("startsWith", true, 1),
    ("endsWith", true, 1),
    (MATCHES, true, 1),
    ("hasValue", true, 0),
    ("value", true, 0),
    ("or", true, 1),
    ("orValue", true, 1),
];

/// Function whose argument is a regular expression.
pub(super) const MATCHES: &str = "matches";

/// Operators, as the parser names them, and their number of arguments.
const OPERATORS: &[(&str, usize)] = &[
    (operators::CONDITIONAL, 3),
    (operators::LOGICAL_AND, 2),
    (operators::LOGICAL_OR, 2),
    (operators::LOGICAL_NOT, 1),
    (operators::NOT_STRICTLY_FALSE, 1),
    (operators::NEGATE, 1),
    (operators::ADD, 2),
    (operators::SUBSTRACT, 2),
    (operators::MULTIPLY, 2),
    (operators::DIVIDE, 2),
    (operators::MODULO, 2),
    (operators::EQUALS, 2),
    (operators::NOT_EQUALS, 2),
    (operators::LESS, 2),
    (operators::LESS_EQUALS, 2),
    (operators::GREATER, 2),
    (operators::GREATER_EQUALS, 2),
    (operators::IN, 2),
    (operators::INDEX, 2),
    (operators::OPT_INDEX, 2),
    (operators::OPT_SELECT, 2),
];

/// Types that `type()` returns.
const TYPES: &[&str] = &[
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "list",
    "map",
    "null_type",
];

/// Syntax tree that is safe to evaluate within the bounds of its cost.
#[derive(Debug)]
pub(super) struct Checked {
    /// Syntax tree.
    pub(super) tree: IdedExpr,
    /// Number of its nodes.
    pub(super) nodes: usize,
    /// Variables that it uses.
    pub(super) uses: Vec<Variable>,
    /// Regular expressions of it.
    pub(super) patterns: Vec<Pattern>,
}

/// Parses and checks a text.
///
/// # Errors
/// The problem, as one line.
pub(super) fn check(text: &str) -> Result<Checked, String> {
    if text.len() > LONGEST {
        return Err(format!("has {} bytes; write at most {LONGEST}", text.len()));
    }
    let signs = text.bytes().filter(u8::is_ascii_punctuation).count();
    if signs > MAX_SIGNS {
        return Err(format!(
            "has {signs} operators and other signs; use at most {MAX_SIGNS}"
        ));
    }
    if mixes_signs(text) {
        return Err("has ! before -, or - before !; no value has the type of both".to_owned());
    }
    let parser = PrattParser::default()
        .enable_optional_syntax(true)
        .max_recursion_depth(MAX_NESTING);
    let tree = parser.parse(text).map_err(|errors| {
        let first = errors.errors.first();
        let problem = first.map_or_else(String::new, |error| {
            let (line, column) = error.pos;
            format!("line {line}, column {column}: {}", error.msg)
        });
        let problem = one_line(&problem, LONGEST_PROBLEM);
        format!("does not compile: {problem}")
    })?;
    let mut walk = Walk::default();
    walk.expression(&tree, 0, 0)?;
    let Walk {
        nodes,
        uses,
        patterns,
        ..
    } = walk;
    if nodes > MAX_NODES {
        return Err(format!(
            "has {nodes} nodes; simplify it to at most {MAX_NODES}, of which each macro such as exists() takes about ten"
        ));
    }
    Ok(Checked {
        tree,
        nodes,
        uses,
        patterns,
    })
}

#[derive(Default)]
struct Walk<'a> {
    nodes: usize,
    uses: Vec<Variable>,
    patterns: Vec<Pattern>,
    /// Variables of the macros around a node.
    scope: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn expression(&mut self, node: &'a IdedExpr, depth: usize, loops: usize) -> Result<(), String> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(format!(
                "is nested deeper than {MAX_DEPTH} levels; use fewer operators in a row"
            ));
        }
        let depth = depth + 1;
        match &node.expr {
            Expr::Literal(LiteralValue::Bytes(_)) => {
                Err("has bytes, which no object has; remove them".to_owned())
            }
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.expression(&select.operand, depth, loops),
            Expr::Call(call) => self.call(call, depth, loops),
            Expr::List(list) => {
                let mut elements = list.elements.iter();
                elements.try_for_each(|element| self.expression(element, depth, loops))
            }
            // Macros go through the keys of a map that an expression makes in another order each time.
            Expr::Map(_) | Expr::Struct(_) => {
                Err("makes a map or an object; compare the fields of an object one by one".to_owned())
            }
            Expr::Comprehension(comprehension) => {
                if loops == MAX_LOOPS {
                    return Err(format!(
                        "has more than {MAX_LOOPS} macros such as exists() within each other; remove one"
                    ));
                }
                self.expression(&comprehension.iter_range, depth, loops)?;
                self.expression(&comprehension.accu_init, depth, loops)?;
                let (variable, result) = (&comprehension.iter_var, &comprehension.accu_var);
                if self.scope.contains(&variable.as_str())
                    || is_known(variable)
                    || comprehension.iter_var2.is_some()
                {
                    let variable = one_line(variable, LONGEST_PROBLEM);
                    return Err(format!(
                        "uses {variable} as variable of a macro, which hides another; rename it"
                    ));
                }
                self.scope.extend([variable.as_str(), result.as_str()]);
                for part in [
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ] {
                    self.expression(part, depth, loops + 1)?;
                }
                self.scope.truncate(self.scope.len().saturating_sub(2));
                Ok(())
            }
            Expr::Unspecified => Err("does not compile: a part of it is empty".to_owned()),
        }
    }

    fn identifier(&mut self, name: &str) -> Result<(), String> {
        if self.scope.contains(&name) || TYPES.contains(&name) {
            return Ok(());
        }
        let Some(variable) = Variable::named(name) else {
            let name = one_line(name, LONGEST_PROBLEM);
            return Err(format!(
                "uses {name}; the variables are object, version, hop and cluster"
            ));
        };
        if !self.uses.contains(&variable) {
            self.uses.push(variable);
        }
        Ok(())
    }

    fn call(&mut self, call: &'a CallExpr, depth: usize, loops: usize) -> Result<(), String> {
        let name = call.func_name.as_str();
        let signature = (name, call.target.is_some(), call.args.len());
        let is_operator = call.target.is_none() && OPERATORS.contains(&(name, call.args.len()));
        if !is_operator && !FUNCTIONS.contains(&signature) {
            return Err(format!("calls {}", refused(signature)));
        }
        if name == MATCHES {
            self.pattern(&call.args)?;
        }
        let mut parts = call.target.iter().map(AsRef::as_ref).chain(&call.args);
        parts.try_for_each(|part| self.expression(part, depth, loops))
    }

    fn pattern(&mut self, arguments: &[IdedExpr]) -> Result<(), String> {
        let literal = arguments.first().and_then(text_of);
        let text = literal.ok_or("has matches() without a literal pattern; write the pattern in quotes")?;
        if !self.patterns.iter().any(|pattern| pattern.text() == text) {
            if self.patterns.len() == MAX_PATTERNS {
                return Err(format!("has more than {MAX_PATTERNS} patterns; combine some"));
            }
            self.patterns.push(Pattern::compile(text)?);
        }
        Ok(())
    }
}

/// Whether a boolean is negated as a number, or the reverse. Parsers disagree about the order, as in `!-1.method()`, and about whether it is
/// allowed.
fn mixes_signs(text: &str) -> bool {
    let mut lexer = Lexer::new(text);
    let mut before = TokenKind::TokEnd;
    loop {
        let kind = lexer.lex().kind;
        match (before, kind) {
            // The parser names the error.
            (_, TokenKind::TokEnd | TokenKind::TokError) => return false,
            (_, TokenKind::TokWhitespace | TokenKind::TokComment) => {}
            (TokenKind::TokExclamation, TokenKind::TokMinus)
            | (TokenKind::TokMinus, TokenKind::TokExclamation) => return true,
            _ => before = kind,
        }
    }
}

/// Whether a name has a meaning outside macros.
fn is_known(name: &str) -> bool {
    TYPES.contains(&name) || Variable::named(name).is_some()
}

/// Returns the text of a literal.
pub(super) fn text_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Describes a call that is refused, and the functions that are not.
fn refused((name, is_member, arguments): (&str, bool, usize)) -> String {
    let known: Vec<String> = FUNCTIONS
        .iter()
        .map(|(name, is_member, _)| format!("{}{name}", if *is_member { "." } else { "" }))
        .collect();
    let dot = if is_member { "." } else { "" };
    let name = one_line(name, LONGEST_PROBLEM);
    format!(
        "{dot}{name}() with {arguments} arguments; the functions are {} and the macros has, all, exists, exists_one, map and filter",
        known.join(", ")
    )
}
