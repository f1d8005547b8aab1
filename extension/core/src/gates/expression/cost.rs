//! Upper bounds of what the evaluation of an expression costs for an object. The evaluator has no limit of its own.

use std::collections::{HashMap, HashSet};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use serde_json::Value;

use super::{
    checked::{Checked, MATCHES, text_of},
    variables::Bound,
};

/// Most steps of one evaluation: nodes of the syntax tree, each times the elements that the macros around it go through.
pub const MAX_STEPS: u64 = 100_000;

/// Most bytes that one evaluation compares, copies and searches.
pub const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Weight of a value beside its text. It is about what its copy takes.
const ELEMENT: u64 = 128;

/// Times that a search takes as long as a comparison, for a text that nearly repeats.
const SEARCH: u64 = 4;

/// Longest text of a number: all digits of a double.
const NUMBER: u64 = 400;

/// Deepest object that is measured. JSON of an API server is at most that deep.
const DEEPEST: usize = 128;

/// Upper bound of the cost of one evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Evaluated nodes.
    pub steps: u64,
    /// Bytes that are compared, copied and searched.
    pub bytes: u64,
}

impl Cost {
    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Whether this is at most `limit`.
    #[must_use]
    pub const fn is_within(self, limit: Self) -> bool {
        self.steps <= limit.steps && self.bytes <= limit.bytes
    }
}

/// Returns an upper bound of the cost of one evaluation.
pub(super) fn cost(checked: &Checked, variables: &[Bound<'_>]) -> Cost {
    let mut walk = Walk {
        checked,
        variables,
        scope: Vec::new(),
        measured: HashMap::new(),
        opened: HashSet::new(),
        cost: Cost::default(),
    };
    walk.visit(&checked.tree, 1);
    walk.cost
}

/// Upper bounds of the size of a value, and of each value in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Longest list or map.
    length: u64,
    /// Longest text, in bytes.
    text: u64,
    /// Weight of all values and texts.
    weight: u64,
    /// Weight of the heaviest value directly in it, and a bound of each one below.
    part: u64,
}

impl Size {
    /// Returns the size of a text, or of another value without elements.
    const fn of_text(length: u64) -> Self {
        Self {
            length: 0,
            text: length,
            weight: ELEMENT.saturating_add(length),
            part: 0,
        }
    }

    const SCALAR: Self = Self::of_text(0);

    /// Returns a bound of the values in this one.
    const fn element(self) -> Self {
        Self {
            weight: self.part,
            ..self
        }
    }

    /// Returns a bound of either.
    fn or(self, other: Self) -> Self {
        Self {
            length: self.length.max(other.length),
            text: self.text.max(other.text),
            weight: self.weight.max(other.weight),
            part: self.part.max(other.part),
        }
    }

    /// Returns a bound of a list or map of `length` values, each one of which is at most as large as `part`.
    fn list_of(length: u64, part: Self) -> Self {
        Self {
            length: length.max(part.length),
            text: part.text,
            weight: length.saturating_mul(part.weight).saturating_add(ELEMENT),
            part: part.weight,
        }
    }

    /// Returns a bound of the sum of two texts or lists.
    fn plus(self, other: Self) -> Self {
        Self {
            length: self.length.saturating_add(other.length),
            text: self.text.saturating_add(other.text),
            weight: self.weight.saturating_add(other.weight),
            part: self.part.max(other.part),
        }
    }

    /// Measures a JSON value.
    fn of(json: &Value, depth: usize) -> Self {
        if depth > DEEPEST {
            return Self {
                length: u64::MAX,
                text: u64::MAX,
                weight: u64::MAX,
                part: u64::MAX,
            };
        }
        let mut sum = Self::SCALAR;
        match json {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => sum = Self::of_text(length(text.len())),
            Value::Array(list) => {
                sum.length = length(list.len());
                for element in list {
                    sum.add(Self::of(element, depth + 1));
                }
            }
            Value::Object(map) => {
                sum.length = length(map.len());
                for (key, value) in map {
                    sum.add(Self::of_text(length(key.len())));
                    sum.add(Self::of(value, depth + 1));
                }
            }
        }
        sum
    }

    /// Adds a value to a list or map.
    fn add(&mut self, part: Self) {
        self.length = self.length.max(part.length);
        self.text = self.text.max(part.text);
        self.weight = self.weight.saturating_add(part.weight);
        self.part = self.part.max(part.weight);
    }
}

fn length(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What is known about the value of a node.
#[derive(Clone, Copy, Debug)]
enum Known<'v> {
    /// It is this one. Copies of it are cheap.
    Json(&'v Value),
    /// It is at most as large.
    Within(Size),
}

/// Walk through a syntax tree. A node costs as many steps as it is evaluated, and the bytes that it may then read.
struct Walk<'a, 'v> {
    checked: &'a Checked,
    variables: &'a [Bound<'v>],
    /// Variables of the macros around a node.
    scope: Vec<(&'a str, Size)>,
    /// Measured values by their address. All of them outlive the walk.
    measured: HashMap<usize, Size>,
    /// Lists and maps that are read, by their address.
    opened: HashSet<usize>,
    cost: Cost,
}

impl<'a, 'v> Walk<'a, 'v> {
    /// Visits a node that is evaluated `times`.
    fn visit(&mut self, node: &'a IdedExpr, times: u64) -> Known<'v> {
        self.cost.steps = self.cost.steps.saturating_add(times);
        match &node.expr {
            Expr::Literal(literal) => {
                let text = match literal {
                    LiteralValue::String(text) => length(text.inner().len()),
                    _ => 0,
                };
                self.reads(times, text);
                Known::Within(Size::of_text(text))
            }
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select, times),
            Expr::Call(call) => self.call(call, times),
            Expr::List(list) => self.made(&list.elements, times),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, times),
            // The rules refuse them.
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => Known::Within(Size::SCALAR),
        }
    }

    /// Notes that a node reads bytes each time.
    fn reads(&mut self, times: u64, bytes: u64) {
        let bytes = times.saturating_mul(bytes);
        self.cost.bytes = self.cost.bytes.saturating_add(bytes);
    }

    /// Returns the size of a value. That of a list or map is measured once.
    fn size(&mut self, known: Known<'v>) -> Size {
        match known {
            Known::Within(size) => size,
            Known::Json(json @ (Value::Array(_) | Value::Object(_))) => {
                let address = std::ptr::from_ref(json).addr();
                if let Some(size) = self.measured.get(&address) {
                    return *size;
                }
                let size = Size::of(json, 0);
                self.reads(1, size.weight);
                self.measured.insert(address, size);
                size
            }
            Known::Json(json) => Size::of(json, 0),
        }
    }

    /// Notes that an element or a field is read. The first time, values are made of all elements or fields.
    fn opens(&mut self, known: Known<'v>) {
        let (json, values) = match known {
            Known::Json(json @ Value::Array(list)) => (json, list.len()),
            Known::Json(json @ Value::Object(map)) => (json, 2 * map.len()),
            Known::Json(_) | Known::Within(_) => return,
        };
        let address = std::ptr::from_ref(json).addr();
        if !self.measured.contains_key(&address) && self.opened.insert(address) {
            self.reads(1, length(values).saturating_mul(ELEMENT));
        }
    }

    /// Returns the weight of the copy of a value.
    fn copied(known: Known<'v>) -> u64 {
        match known {
            Known::Json(_) => ELEMENT,
            Known::Within(size) => size.weight,
        }
    }

    fn variable(&mut self, name: &str) -> Known<'v> {
        let mut scope = self.scope.iter().rev();
        if let Some((_, size)) = scope.find(|(variable, _)| *variable == name) {
            return Known::Within(*size);
        }
        let mut variables = self.variables.iter();
        match variables.find(|bound| bound.variable.name() == name) {
            Some(bound) => Known::Json(bound.json),
            // A type.
            None => Known::Within(Size::SCALAR),
        }
    }

    fn select(&mut self, select: &'a SelectExpr, times: u64) -> Known<'v> {
        let operand = self.visit(&select.operand, times);
        let field = self.field(operand, &select.field);
        if select.test {
            return Known::Within(Size::SCALAR);
        }
        field
    }

    /// Returns a field. The evaluation fails, or has no value, where it is absent.
    fn field(&mut self, operand: Known<'v>, field: &str) -> Known<'v> {
        self.opens(operand);
        match operand {
            Known::Json(json) => json.get(field).map_or(Known::Within(Size::SCALAR), Known::Json),
            Known::Within(size) => Known::Within(size.element()),
        }
    }

    /// Returns a list that the expression makes.
    fn made(&mut self, elements: &'a [IdedExpr], times: u64) -> Known<'v> {
        let mut made = Size {
            length: length(elements.len()),
            ..Size::SCALAR
        };
        for element in elements {
            let known = self.visit(element, times);
            self.reads(times, Self::copied(known));
            let size = self.size(known);
            made.add(size);
        }
        Known::Within(made)
    }

    fn call(&mut self, call: &'a CallExpr, times: u64) -> Known<'v> {
        let parts: Vec<&IdedExpr> = call.target.iter().map(AsRef::as_ref).chain(&call.args).collect();
        let known: Vec<Known<'v>> = parts.iter().map(|part| self.visit(part, times)).collect();
        let name = call.func_name.as_str();
        match (name, known.as_slice()) {
            (operators::CONDITIONAL, [_, one, other]) => {
                let (one, other) = (self.size(*one), self.size(*other));
                Known::Within(one.or(other))
            }
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE,
                _,
            ) => Known::Within(Size::SCALAR),
            // A number that is compared with a list copies the list, for an error that nothing shows.
            (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => {
                let (one, other) = (self.size(*one), self.size(*other));
                self.reads(times, one.weight.saturating_add(other.weight));
                Known::Within(Size::SCALAR)
            }
            (operators::IN, [value, map @ Known::Json(Value::Object(_))]) => {
                self.opens(*map);
                let weight = self.size(*value).weight;
                self.reads(times, weight);
                Known::Within(Size::SCALAR)
            }
            (operators::IN, [value, container]) => {
                let (value, container) = (self.size(*value), self.size(*container));
                let compared = value.weight.saturating_mul(container.length);
                self.reads(times, compared.saturating_add(container.weight));
                Known::Within(Size::SCALAR)
            }
            (operators::INDEX | operators::OPT_INDEX, [container, index]) => {
                // A map compares the text of a key, and an error copies it.
                let key = self.size(*index).text;
                self.reads(times, key);
                let index = parts.get(1).copied();
                self.index(*container, index, times, name == operators::OPT_INDEX)
            }
            (operators::OPT_SELECT, [operand, _]) => {
                let field = parts.get(1).and_then(|part| text_of(part)).unwrap_or_default();
                let field = self.field(*operand, field);
                self.reads(times, Self::copied(field));
                field
            }
            (operators::ADD, [one, other]) => {
                let (one, other) = (self.size(*one), self.size(*other));
                let sum = one.plus(other);
                self.reads(times, sum.weight);
                Known::Within(sum)
            }
            (MATCHES, [text, _]) => {
                let text = self.size(*text).text;
                let pattern = parts.get(1).and_then(|part| text_of(part)).unwrap_or_default();
                let mut patterns = self.checked.patterns.iter();
                let cost = patterns
                    .find(|compiled| compiled.text() == pattern)
                    .map_or(u64::MAX, super::pattern::Pattern::cost);
                self.reads(times, text.saturating_add(ELEMENT).saturating_mul(cost));
                Known::Within(Size::SCALAR)
            }
            ("string", [value]) => {
                let text = self.size(*value).text.max(NUMBER);
                self.reads(times, text);
                Known::Within(Size::of_text(text))
            }
            ("dyn", [value]) => *value,
            ("value" | "or" | "orValue", _) => {
                let mut either = Size::SCALAR;
                for value in known {
                    self.reads(times, Self::copied(value));
                    either = either.or(self.size(value));
                }
                Known::Within(either)
            }
            // A search reads texts, and so do a conversion and the size of one.
            (
                "size" | "int" | "uint" | "double" | "bool" | "type" | "hasValue" | "contains" | "startsWith"
                | "endsWith",
                _,
            ) => {
                for value in known {
                    let text = self.size(value).text;
                    let factor = if name == "contains" { SEARCH } else { 1 };
                    self.reads(times, text.saturating_mul(factor));
                }
                Known::Within(Size::SCALAR)
            }
            // The error of a calculation or comparison copies its operands.
            _ => {
                for value in known {
                    let weight = self.size(value).weight;
                    self.reads(times, weight);
                }
                Known::Within(Size::SCALAR)
            }
        }
    }

    /// Returns an element of a list, or the value of a key.
    fn index(
        &mut self,
        container: Known<'v>,
        index: Option<&IdedExpr>,
        times: u64,
        optional: bool,
    ) -> Known<'v> {
        self.opens(container);
        let literal = index.and_then(|index| match &index.expr {
            Expr::Literal(literal) => Some(literal),
            _ => None,
        });
        let found = match (container, literal) {
            (Known::Json(json), Some(LiteralValue::String(key))) => Some(json.get(key.inner())),
            (Known::Json(json), Some(LiteralValue::Int(at))) => {
                Some(usize::try_from(*at.inner()).ok().and_then(|at| json.get(at)))
            }
            _ => None,
        };
        // The error of a list with an index of another type copies the list.
        let is_cheap = matches!(literal, Some(LiteralValue::String(_) | LiteralValue::Int(_)))
            || matches!(container, Known::Json(Value::Object(_)));
        let element = if let Some(found) = found {
            found.map_or(Known::Within(Size::SCALAR), Known::Json)
        } else {
            let size = self.size(container);
            if !is_cheap {
                self.reads(times, size.weight);
            }
            Known::Within(size.element())
        };
        if optional {
            self.reads(times, Self::copied(element));
        }
        element
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr, times: u64) -> Known<'v> {
        let range = self.visit(&comprehension.iter_range, times);
        self.visit(&comprehension.accu_init, times);
        let size = self.size(range);
        let elements = match range {
            Known::Json(Value::Array(list)) => length(list.len()),
            Known::Json(Value::Object(map)) => length(map.len()),
            Known::Json(_) => 0,
            Known::Within(size) => size.length,
        };
        // Each element is copied for the variable of the macro.
        let copies = match range {
            Known::Json(_) => elements.saturating_mul(ELEMENT),
            Known::Within(size) => size.weight,
        };
        self.reads(times, copies);
        let each = times.saturating_mul(elements);
        let result = comprehension.accu_var.as_str();
        self.scope.push((comprehension.iter_var.as_str(), size.element()));
        self.scope.push((result, Size::SCALAR));
        self.visit(&comprehension.loop_cond, each);
        let made = if matches!(comprehension.accu_init.expr, Expr::List(_)) {
            let part = self.appended(&comprehension.loop_step, result, each);
            self.reads(each, part.weight.saturating_mul(2));
            Some(Size::list_of(elements, part))
        } else {
            self.visit(&comprehension.loop_step, each);
            None
        };
        if let (Some(made), Some((_, result))) = (made, self.scope.last_mut()) {
            *result = made;
        }
        let result = self.visit(&comprehension.result, times);
        self.scope.truncate(self.scope.len().saturating_sub(2));
        result
    }

    /// Visits the step of `map` or `filter`, which adds at most one element to its result. Returns a bound of the element.
    fn appended(&mut self, step: &'a IdedExpr, result: &str, times: u64) -> Size {
        let is_result = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if name == result);
        self.cost.steps = self.cost.steps.saturating_add(times.saturating_mul(2));
        let Expr::Call(call) = &step.expr else {
            return self.unknown();
        };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [guard, step, otherwise]) if is_result(otherwise) => {
                self.visit(guard, times);
                self.appended(step, result, times)
            }
            (operators::ADD, [before, added]) if is_result(before) => match &added.expr {
                Expr::List(list) if list.elements.len() == 1 => {
                    let mut size = Size::SCALAR;
                    for element in &list.elements {
                        let known = self.visit(element, times);
                        size = self.size(known);
                    }
                    size
                }
                _ => self.unknown(),
            },
            _ => self.unknown(),
        }
    }

    /// Notes a shape that no macro makes: nothing bounds its cost.
    fn unknown(&mut self) -> Size {
        self.cost.steps = u64::MAX;
        Size::SCALAR
    }
}
