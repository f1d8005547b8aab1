//! JSON values as values of CEL.
//!
//! Each list and map is converted when it is first read, one level at a time, and texts are borrowed. The copy of a list or map shares it:
//! the evaluator copies each element that a macro takes, which would cost as much as the object has levels below it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use cel::{
    ExecutionError,
    common::{
        traits::{Adder, Container, Indexer, Iterable, Iterator, Sizer, Zeroer},
        types::{
            CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt, LIST_TYPE,
            MAP_TYPE, Type,
        },
        value::{Builtin, BuiltinRef, CowVal, Val},
    },
};
use serde_json::{Map, Number, Value};

#[cfg(test)]
use super::tests;

/// Returns a JSON value as a value of CEL.
pub(super) fn value(json: &Value) -> Box<dyn Val + '_> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(flag) => Box::new(CelBool::from(*flag)),
        Value::Number(number) => self::number(number),
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(list) => Box::new(List(Arc::new(ListOf {
            json: list,
            list: OnceLock::new(),
        }))),
        Value::Object(map) => Box::new(Fields(Arc::new(FieldsOf {
            json: map,
            map: OnceLock::new(),
        }))),
    }
}

fn number<'v>(number: &Number) -> Box<dyn Val + 'v> {
    if let Some(number) = number.as_i64() {
        Box::new(CelInt::from(number))
    } else if let Some(number) = number.as_u64() {
        Box::new(CelUInt::from(number))
    } else {
        Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
    }
}

fn count(number: usize) -> CelInt {
    CelInt::from(i64::try_from(number).unwrap_or(i64::MAX))
}

/// JSON array.
#[derive(Clone)]
struct List<'v>(Arc<ListOf<'v>>);

struct ListOf<'v> {
    json: &'v [Value],
    list: OnceLock<Box<CelList<'v>>>,
}

impl<'v> List<'v> {
    fn list(&self) -> &CelList<'v> {
        self.0.list.get_or_init(|| {
            let elements: Vec<Box<dyn Val + 'v>> = self.0.json.iter().map(value).collect();
            Box::new(CelList::from(elements))
        })
    }
}

/// Content of objects is not for logs.
impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("list")
    }
}

impl Val for List<'_> {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'w>(&'b self) -> Option<&'b (dyn Adder + 'w)>
    where
        Self: 'w,
    {
        self.list().as_adder()
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.list().as_container()
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        self.list().as_indexer()
    }

    fn into_indexer<'w>(self: Box<Self>) -> Option<Box<dyn Indexer + 'w>>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        self.list().as_iterable()
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        self.list().equals(other)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        #[cfg(test)]
        tests::copied();
        Box::new(self.clone())
    }

    // The evaluator recognizes lists and maps by these two, also for the comparison with one that the expression makes.
    fn as_builtin<'b, 'w>(&'b self) -> BuiltinRef<'b, 'w>
    where
        Self: 'w,
    {
        BuiltinRef::List(self.list())
    }

    fn into_builtin<'w>(self: Box<Self>) -> Option<Builtin<'w>>
    where
        Self: 'w,
    {
        Some(Builtin::List(self.list().clone()))
    }
}

// The evaluator takes an element from a list that nothing else refers to, such as that of an optional. The list is shared all the same.
impl Indexer for List<'_> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.list().get(index)
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.list().get(index).map(CowVal::into_owned)
    }
}

impl Sizer for List<'_> {
    fn size(&self) -> CelInt {
        count(self.0.json.len())
    }
}

impl Zeroer for List<'_> {
    fn is_zero_value(&self) -> bool {
        self.0.json.is_empty()
    }
}

/// JSON object.
#[derive(Clone)]
struct Fields<'v>(Arc<FieldsOf<'v>>);

struct FieldsOf<'v> {
    json: &'v Map<String, Value>,
    map: OnceLock<Box<Converted<'v>>>,
}

struct Converted<'v> {
    map: CelMap<'v>,
    /// Keys in their order: macros over the same map then have the same result each time.
    keys: CelList<'v>,
}

impl<'v> Fields<'v> {
    fn converted(&self) -> &Converted<'v> {
        self.0.map.get_or_init(|| {
            let key = |key: &'v String| CelString::from(key.as_str());
            let map: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = self
                .0
                .json
                .iter()
                .map(|(name, json)| (CelMapKey::String(key(name)), value(json)))
                .collect();
            let mut names: Vec<&'v String> = self.0.json.keys().collect();
            names.sort_unstable();
            let keys: Vec<Box<dyn Val + 'v>> = names
                .into_iter()
                .map(|name| Box::new(key(name)) as Box<dyn Val + 'v>)
                .collect();
            Box::new(Converted {
                map: CelMap::from(map),
                keys: CelList::from(keys),
            })
        })
    }

    fn map(&self) -> &CelMap<'v> {
        &self.converted().map
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("map")
    }
}

impl Val for Fields<'_> {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.map().as_container()
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        self.map().as_indexer()
    }

    fn into_indexer<'w>(self: Box<Self>) -> Option<Box<dyn Indexer + 'w>>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        self.map().equals(other)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        #[cfg(test)]
        tests::copied();
        Box::new(self.clone())
    }

    fn as_builtin<'b, 'w>(&'b self) -> BuiltinRef<'b, 'w>
    where
        Self: 'w,
    {
        BuiltinRef::Map(self.map())
    }

    fn into_builtin<'w>(self: Box<Self>) -> Option<Builtin<'w>>
    where
        Self: 'w,
    {
        Some(Builtin::Map(self.map().clone()))
    }
}

impl Indexer for Fields<'_> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.map().get(key)
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.map().get(key).map(CowVal::into_owned)
    }
}

impl Iterable for Fields<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn Iterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        self.converted().keys.iter()
    }
}

impl Sizer for Fields<'_> {
    fn size(&self) -> CelInt {
        count(self.0.json.len())
    }
}

impl Zeroer for Fields<'_> {
    fn is_zero_value(&self) -> bool {
        self.0.json.is_empty()
    }
}
