//! Text of a mismatch, from the schema alone.

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};

use crate::text::one_line;

/// Length limit of the path of a field, in characters.
const LONGEST: usize = 160;

/// Returns the field of a mismatch, and what is wrong with it. Both are from the schema, because values may be secret.
pub(super) fn text(error: &ValidationError<'_>) -> String {
    let what = match error.kind() {
        ValidationErrorKind::Type { kind } => format!("is not of type {}", types(kind)),
        ValidationErrorKind::Required { property } => {
            let name = one_line(property.as_str().unwrap_or_default(), LONGEST);
            format!("has no field {name}")
        }
        ValidationErrorKind::AdditionalProperties { .. } | ValidationErrorKind::FalseSchema => {
            "has a field that the schema does not list".to_owned()
        }
        ValidationErrorKind::Enum { .. } => "is none of the listed values".to_owned(),
        ValidationErrorKind::Pattern { .. } => "does not match the pattern".to_owned(),
        kind => format!("violates {}", kind.keyword()),
    };
    let field = one_line(&field(error.schema_path().as_str()), LONGEST);
    if field.is_empty() {
        format!("the document {what}")
    } else {
        format!("{field} {what}")
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
            kinds.join(" or ")
        }
    }
}

/// Returns the field that a keyword of the schema is for, `nodes[].name`. A field that the schema does not list is `*`.
fn field(path: &str) -> String {
    let mut field = String::new();
    let mut tokens = path.split('/').skip(1).peekable();
    while let Some(token) = tokens.next() {
        let is_last = tokens.peek().is_none();
        let name = match token {
            "properties" => tokens
                .next()
                .map(|name| name.replace("~1", "/").replace("~0", "~")),
            "additionalProperties" if !is_last => Some("*".to_owned()),
            "allOf" | "anyOf" | "oneOf" => {
                tokens.next();
                None
            }
            "items" if !is_last => {
                field.push_str("[]");
                None
            }
            _ => None,
        };
        if let Some(name) = name {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(&name);
        }
    }
    field
}
