use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Refused;

/// A mapping of the file, with its path for messages.
pub(super) struct Section<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

/// Entry of one of the three lists. Its content is read once it is selected.
pub(super) struct Entry<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) section: Section<'a>,
}

impl<'a> Section<'a> {
    pub(super) fn root(tree: &'a Value) -> Result<Self, Refused> {
        Self::at(String::new(), tree)
    }

    fn at(path: String, value: &'a Value) -> Result<Self, Refused> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            _ => Err(Refused::Type {
                field: or_file(path),
                expected: "a mapping",
            }),
        }
    }

    pub(super) fn path(&self) -> String {
        or_file(self.path.clone())
    }

    pub(super) fn field(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Refuses these fields, each with its remedy, unless they are unset.
    pub(super) fn refuse(&self, refused: &[(&'static str, &'static str)]) -> Result<(), Refused> {
        let used = |name: &str| self.fields.get(name).is_some_and(|value| !is_unset(name, value));
        match refused.iter().copied().find(|(name, _)| used(name)) {
            Some((name, instead)) => Err(Refused::NotUsed {
                field: self.field(name),
                instead,
            }),
            None => Ok(()),
        }
    }

    /// Returns a text. Null and empty count as absent, as in client-go. A number or a bool is a text, as for kapp-controller: names often
    /// lack their quotes.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Refused> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                Ok(Some(Cow::Borrowed(text.as_str())).filter(|text| !text.is_empty()))
            }
            Some(Value::Number(number)) => Ok(Some(number.to_string().into())),
            Some(Value::Bool(value)) => Ok(Some(value.to_string().into())),
            Some(Value::Array(_) | Value::Object(_)) => Err(Refused::Type {
                field: self.field(name),
                expected: "a string",
            }),
        }
    }

    pub(super) fn required(&self, name: &'static str) -> Result<Cow<'a, str>, Refused> {
        self.text(name)?.ok_or_else(|| Refused::Missing {
            field: self.field(name),
        })
    }

    /// Checks an optional field with only one allowed value.
    pub(super) fn constant(&self, name: &'static str, value: &'static str) -> Result<(), Refused> {
        match self.text(name)? {
            Some(other) if other != value => Err(Refused::Type {
                field: self.field(name),
                expected: value,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn section(&self, name: &'static str) -> Result<Self, Refused> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Err(Refused::Missing {
                field: self.field(name),
            }),
            Some(value) => Self::at(self.field(name), value),
        }
    }

    /// Reads the names of a list of entries.
    pub(super) fn entries(&self, name: &'static str) -> Result<Vec<Entry<'a>>, Refused> {
        let list = match self.fields.get(name) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => {
                return Err(Refused::Type {
                    field: self.field(name),
                    expected: "a list",
                });
            }
        };
        let mut entries: Vec<Entry<'a>> = Vec::with_capacity(list.len());
        for (position, value) in list.iter().enumerate() {
            let section = Self::at(format!("{}[{position}]", self.field(name)), value)?;
            let name = section.text("name")?.unwrap_or_default();
            if entries.iter().any(|earlier| earlier.name == name) {
                return Err(Refused::DuplicateName {
                    field: section.field("name"),
                });
            }
            entries.push(Entry { name, section });
        }
        Ok(entries)
    }
}

fn or_file(path: String) -> String {
    if path.is_empty() {
        "the file".to_owned()
    } else {
        path
    }
}

/// Returns whether client-go treats a field with this value as absent.
fn is_unset(name: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        // An empty plugin is a plugin without a command.
        Value::Object(fields) => fields.is_empty() && name == "as-user-extra",
        Value::Bool(true) | Value::Number(_) => false,
    }
}
