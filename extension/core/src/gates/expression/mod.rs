//! CEL expressions of checks.
//!
//! Tenants write them, and objects of tenants are their input. No text and no object may abort the process, occupy it or take its memory:
//! a text is parsed and checked within bounds, and its cost for an object is computed before it is evaluated.

mod cache;
mod checked;
mod cost;
mod failure;
mod meter;
mod pattern;
mod value;
mod variables;

#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, FunctionContext,
    common::{
        types::{CelBool, CelString},
        value::Val,
    },
};
use serde_json::Value;

pub use cost::{Cost, MAX_BYTES, MAX_STEPS};
pub use failure::ExpressionError;
pub use meter::Meter;
pub use variables::{Variable, Variables};

use cache::CACHE;
use checked::{Checked, MATCHES, check};
use cost::cost;
use failure::{failed, not_boolean, panicked, too_costly, too_large, unknown_cluster};
use meter::{Metered, size};
use variables::{Bound, Made};

/// Largest object that an expression is evaluated for, in bytes of JSON.
pub const MAX_OBJECT: usize = 1024 * 1024;

/// Functions and types of CEL.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Expression of a check.
#[derive(Clone, Debug)]
pub struct Expression {
    compiled: Arc<Compiled>,
    metered: Option<Arc<Metered>>,
}

/// Compiled text of an expression.
#[derive(Debug)]
struct Compiled {
    text: String,
    checked: Checked,
}

/// Two expressions are equal if their texts are.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.compiled.text == other.compiled.text
    }
}

impl Eq for Expression {}

impl Expression {
    /// Compiles a text. Recently compiled texts are not parsed again.
    ///
    /// # Errors
    /// The problem with its remedy, as one line without the field.
    pub fn compile(text: &str) -> Result<Self, String> {
        let compiled = CACHE.get(text, || {
            // The parser and its trees are of another project.
            let checked = catch_unwind(|| check(text));
            let checked =
                checked.unwrap_or_else(|_| Err("does not compile: the parser failed".to_owned()))?;
            let text = text.to_owned();
            Ok(Arc::new(Compiled { text, checked }))
        })?;
        Ok(Self {
            compiled,
            metered: None,
        })
    }

    /// Returns the same expression for one check of one judgement. It is evaluated once per version, and its cost counts for `meter`.
    #[must_use]
    pub fn metered(&self, meter: &Meter) -> Self {
        Self {
            compiled: Arc::clone(&self.compiled),
            metered: Some(Arc::new(Metered::of(meter))),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.compiled.text
    }

    /// Whether the expression uses a variable.
    #[must_use]
    pub fn uses(&self, variable: Variable) -> bool {
        self.compiled.checked.uses.contains(&variable)
    }

    /// Returns the number of different patterns of `matches()`.
    #[must_use]
    pub(super) fn patterns(&self) -> usize {
        self.compiled.checked.patterns.len()
    }

    /// Returns an upper bound of the cost of one evaluation.
    #[must_use]
    pub fn cost(&self, variables: &Variables<'_>) -> Cost {
        let made = Made::of(variables);
        cost(&self.compiled.checked, &made.bound(variables.object))
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// It costs too much for these variables, fails, or gives another value than true or false.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Result<bool, ExpressionError> {
        match &self.metered {
            Some(metered) => metered.once(variables.version, |meter| self.within(variables, Some(meter))),
            None => self.within(variables, None),
        }
    }

    /// Evaluates the expression if its cost is within its bounds, and `meter` grants it.
    fn within(&self, variables: &Variables<'_>, meter: Option<&Meter>) -> Result<bool, ExpressionError> {
        let size = |json: &Value| meter.map_or_else(|| size(json), |meter| meter.size(json));
        let Some(object) = size(variables.object) else {
            return Err(too_large());
        };
        if self.uses(Variable::Cluster) && variables.cluster.is_none() {
            return Err(unknown_cluster());
        }
        if let Some(meter) = meter {
            let texts = variables.cluster.map_or(0, |cluster| {
                let metadata = &cluster["metadata"];
                let texts = |field: &str| size(&metadata[field]).unwrap_or(MAX_OBJECT);
                texts("labels") + texts("annotations")
            });
            meter.spend_size(object + texts)?;
        }
        let made = Made::of(variables);
        let bound = made.bound(variables.object);
        let cost = cost(&self.compiled.checked, &bound);
        let limit = Cost {
            steps: MAX_STEPS,
            bytes: MAX_BYTES,
        };
        if !cost.is_within(limit) {
            return Err(too_costly(cost));
        }
        if let Some(meter) = meter {
            meter.spend(cost)?;
        }
        // The evaluator is of another project, and its input is that of tenants. Nothing outlives a panic but its hook.
        let evaluated = catch_unwind(AssertUnwindSafe(|| self.evaluated(&bound)));
        evaluated.unwrap_or_else(|_| Err(panicked()))
    }

    fn evaluated(&self, bound: &[Bound<'_>]) -> Result<bool, ExpressionError> {
        let Compiled { text, checked } = self.compiled.as_ref();
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for Bound { variable, json } in bound {
            context.add_variable_as_val(variable.name(), value::value(json));
        }
        if !checked.patterns.is_empty() {
            let compiled = Arc::clone(&self.compiled);
            let matches = move |call: &FunctionContext<'_, '_>| is_match(&compiled.checked, call);
            context.add_function(MATCHES, matches).map_err(|_| panicked())?;
        }
        let value = cel::Value::resolve_val(&checked.tree, &context).map_err(|error| failed(&error, text))?;
        match value.downcast_ref::<CelBool>() {
            Some(result) => Ok(*result.inner()),
            None => Err(not_boolean(value.get_type().name())),
        }
    }
}

/// Whether this process has compiled a text, and keeps the result.
#[cfg(test)]
pub(super) fn is_compiled(text: &str) -> bool {
    CACHE.has(text)
}

/// Function `matches()` with the compiled patterns of an expression.
fn is_match(checked: &Checked, call: &FunctionContext<'_, '_>) -> Result<bool, ExecutionError> {
    let text = call.this.as_deref().and_then(as_text);
    let pattern = call.args.first().and_then(|pattern| as_text(pattern.as_ref()));
    let (Some(text), Some(pattern)) = (text, pattern) else {
        return Err(call.error("the text is not a string"));
    };
    let mut patterns = checked.patterns.iter();
    match patterns.find(|compiled| compiled.text() == pattern) {
        Some(compiled) => Ok(compiled.matches(text)),
        None => Err(call.error("the pattern is unknown")),
    }
}

fn as_text<'a>(value: &'a (dyn Val + '_)) -> Option<&'a str> {
    let text: &'a CelString<'_> = value.downcast_ref()?;
    Some(text.inner())
}
