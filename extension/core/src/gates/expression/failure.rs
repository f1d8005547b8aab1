//! Errors of expressions. An object may be secret to the author of a gate, so they have names and types, and no values.

use cel::ExecutionError;

use super::cost::{Cost, MAX_BYTES, MAX_STEPS};
use crate::{reasons::CheckReason, text::one_line};

/// Longest detail, in characters.
const LONGEST: usize = 256;

/// Why an expression is neither true nor false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// `ExpressionFailed` or `ExpressionTooCostly`.
    pub reason: CheckReason,
    /// The problem, constant while the cause is: `the expression fails`.
    pub message: String,
    /// What an author needs to correct it.
    pub detail: String,
}

impl ExpressionError {
    fn failed(detail: &str) -> Self {
        Self {
            reason: CheckReason::ExpressionFailed,
            message: "the expression fails".to_owned(),
            detail: one_line(detail, LONGEST),
        }
    }

    fn too_costly(detail: String) -> Self {
        Self {
            reason: CheckReason::ExpressionTooCostly,
            message: "the expression costs too much".to_owned(),
            detail,
        }
    }
}

/// Returns the error of the evaluator. `text` is the expression.
pub(super) fn failed(error: &ExecutionError, text: &str) -> ExpressionError {
    // The key may be the content of another field.
    let key = |key: &str| {
        if text.contains(key) {
            format!("{key} is missing; test it with has(), or write .? before it")
        } else {
            "a key is missing; test it with in".to_owned()
        }
    };
    let detail = match error {
        ExecutionError::NoSuchKey(name) => key(name),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UndeclaredReference(name) if text.contains(name.as_str()) => {
            format!("{name} is unknown")
        }
        ExecutionError::UnexpectedType { want, .. } if text.is_ascii() && want.len() < 32 => {
            format!("a value is not of type {want}")
        }
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
            format!("{operator} is not defined for the types of its operands")
        }
        ExecutionError::ValuesNotComparable(..) => "values of two types are compared".to_owned(),
        ExecutionError::FunctionError { function, .. } => format!("{function} fails for its argument"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "a division by zero".to_owned()
        }
        ExecutionError::Overflow(operator, ..) => format!("{operator} overflows"),
        ExecutionError::IndexOutOfBounds(_) => "a list has no such element; test its size()".to_owned(),
        ExecutionError::DuplicateKey(_) => "a map has a key twice".to_owned(),
        _ => "a value is not of the type that the expression needs".to_owned(),
    };
    ExpressionError::failed(&detail)
}

/// Returns the error of an expression with a result of another type.
pub(super) fn not_boolean(type_: &str) -> ExpressionError {
    ExpressionError::failed(&format!(
        "its result is of type {type_}; compare it, so that it is true or false"
    ))
}

/// Returns the error of an evaluation that panicked.
pub(super) fn panicked() -> ExpressionError {
    ExpressionError::failed("the evaluator failed; write the expression in another way")
}

/// Returns the error of a variable without a value.
pub(super) fn unknown_cluster() -> ExpressionError {
    ExpressionError::failed("the Cluster was not read")
}

/// Returns the error of an expression that exceeds its bounds.
pub(super) fn too_costly(cost: Cost) -> ExpressionError {
    let limit = if cost.steps > MAX_STEPS {
        format!("it would take more than {MAX_STEPS} steps")
    } else {
        format!(
            "it would compare and copy more than {} MiB",
            MAX_BYTES / 1024 / 1024
        )
    };
    ExpressionError::too_costly(format!(
        "{limit} for this object; name shorter lists and texts of it"
    ))
}

/// Returns the error of an object that is too large.
pub(super) fn too_large() -> ExpressionError {
    ExpressionError::too_costly("the object has more than 1 MiB; check another object".to_owned())
}

/// Returns the error of an expression that exceeds what is left for the expressions of a Cluster.
pub(super) fn exhausted() -> ExpressionError {
    ExpressionError::too_costly(
        "the expressions of all gates of the Cluster with this mode cost too much together; simplify or remove some"
            .to_owned(),
    )
}
