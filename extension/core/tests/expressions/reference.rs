//! The same evaluation by the default parser of the evaluator and by its own values.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cel::{
    Context, Env, FunctionContext, Value as Eager,
    common::{
        types::CelString,
        value::{CowVal, Val},
    },
    context::VariableResolver,
    parser::Parser,
};
use serde_json::{Value, json};
use sluice_core::gates::expression::Variables;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Variables that count how often they are read.
struct Counted {
    values: Vec<(&'static str, Box<dyn Val>)>,
    reads: AtomicU64,
}

impl VariableResolver for Counted {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let (_, value) = self.values.iter().find(|(name, _)| *name == variable)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        Some(CowVal::Borrowed(value.as_ref()))
    }
}

/// Returns the result, none for an error or another type, and the number of reads of variables; nothing if the order of the keys of a
/// map decides the result, which differs between evaluations here.
pub(crate) fn evaluate(text: &str, variables: &Variables<'_>) -> Option<(Option<bool>, u64)> {
    let parsed = Parser::default().enable_optional_syntax(true).parse(text);
    let tree = match parsed {
        Ok(tree) => tree,
        // It counts each bracket as a level, also one around brackets.
        Err(errors) if errors.to_string().contains("Recursion limit") => return None,
        // Only this parser refuses line breaks in quotes.
        Err(_) if text.contains('\n') => return None,
        Err(errors) => panic!("the default parser refuses it: {errors}"),
    };
    let mut results = (0..3).map(|_| {
        let counted = counted(variables);
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.set_variable_resolver(&counted);
        context.add_function("matches", matches).unwrap();
        let value = Eager::resolve(&tree, &context);
        drop(context);
        let result = match value {
            Ok(Eager::Bool(result)) => Some(result),
            _ => None,
        };
        (result, counted.reads.load(Ordering::Relaxed))
    });
    let first = results.next()?;
    results.all(|(result, _)| result == first.0).then_some(first)
}

fn matches(call: &FunctionContext<'_, '_>) -> Result<bool, cel::ExecutionError> {
    let text = call.this.as_deref().and_then(as_text);
    let pattern = call.args.first().and_then(|pattern| as_text(pattern.as_ref()));
    let (Some(text), Some(pattern)) = (text, pattern) else {
        return Err(call.error("not a string"));
    };
    let pattern = regex_lite::Regex::new(pattern).map_err(|error| call.error(error))?;
    Ok(pattern.is_match(text))
}

fn as_text<'a>(value: &'a (dyn Val + '_)) -> Option<&'a str> {
    let text: &'a CelString<'_> = value.downcast_ref()?;
    Some(text.inner())
}

fn counted(variables: &Variables<'_>) -> Counted {
    let minor = variables.hop.get(1..5).unwrap_or_default();
    let metadata = &variables.cluster.unwrap()["metadata"];
    let eager = |json: &Value| -> Box<dyn Val> { eager(json).try_into().unwrap() };
    Counted {
        values: vec![
            ("object", eager(variables.object)),
            ("version", eager(&json!(variables.version))),
            ("hop", eager(&json!({"version": variables.hop, "minor": minor}))),
            ("cluster", eager(metadata)),
        ],
        reads: AtomicU64::new(0),
    }
}

/// Returns a value of the evaluator. Its own conversion makes unsigned numbers of integers.
fn eager(json: &Value) -> Eager {
    match json {
        Value::Null => Eager::Null,
        Value::Bool(flag) => Eager::Bool(*flag),
        Value::Number(number) => number
            .as_i64()
            .map(Eager::Int)
            .or_else(|| number.as_u64().map(Eager::UInt))
            .unwrap_or_else(|| Eager::Float(number.as_f64().unwrap())),
        Value::String(text) => Eager::String(Arc::new(text.clone())),
        Value::Array(list) => Eager::List(Arc::new(list.iter().map(eager).collect())),
        Value::Object(map) => {
            let map: HashMap<String, Eager> = map
                .iter()
                .map(|(key, value)| (key.clone(), eager(value)))
                .collect();
            Eager::Map(map.into())
        }
    }
}
