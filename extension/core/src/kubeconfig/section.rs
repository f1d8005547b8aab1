use serde_json::{Map, Value};

use super::{Entry, Refused};

/// A mapping of the file, with its path for messages.
pub(super) struct Section<'a> {
    path: String,
    fields: &'a Map<String, Value>,
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

    /// Refuses every field except these. The refusal names a known field of kubeconfigs but no other field, because such a
    /// key is the tenant's text.
    pub(super) fn allow(&self, allowed: &[&str]) -> Result<(), Refused> {
        let others = || {
            self.fields
                .keys()
                .filter(|name| !allowed.contains(&name.as_str()))
        };
        if let Some((name, instead)) = others().find_map(|name| refused_field(name)) {
            return Err(Refused::NotUsed {
                field: self.field(name),
                instead,
            });
        }
        match others().next() {
            None => Ok(()),
            Some(_) => Err(Refused::Unknown {
                section: self.path(),
                known: allowed.join(", "),
            }),
        }
    }

    /// Returns a text. Null and empty count as absent, as in client-go.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<&'a str>, Refused> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(Refused::Type {
                field: self.field(name),
                expected: "a string",
            }),
        }
    }

    pub(super) fn required(&self, name: &'static str) -> Result<&'a str, Refused> {
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

    /// Reads a list of named entries, each in full.
    pub(super) fn entries<T>(
        &self,
        name: &'static str,
        read: impl Fn(&Self) -> Result<T, Refused>,
    ) -> Result<Vec<Entry<T>>, Refused> {
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
        let mut entries: Vec<Entry<T>> = Vec::with_capacity(list.len());
        for (position, value) in list.iter().enumerate() {
            let entry = Self::at(format!("{}[{position}]", self.field(name)), value)?;
            let content = read(&entry)?;
            let name = entry.required("name")?.to_owned();
            if entries.iter().any(|earlier| earlier.name == name) {
                return Err(Refused::DuplicateName {
                    field: entry.field("name"),
                });
            }
            entries.push(Entry { name, content });
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

/// Refused fields of client-go's `Config`, anywhere in the file, with the remedy.
fn refused_field(name: &str) -> Option<(&'static str, &'static str)> {
    const CREDENTIALS: &str = "put a token or client-certificate-data there";
    const AUTHORITY: &str = "put certificate-authority-data there";
    const REMOVE: &str = "remove it";
    const FIELDS: [(&str, &str); 14] = [
        ("exec", CREDENTIALS),
        ("auth-provider", CREDENTIALS),
        ("username", CREDENTIALS),
        ("password", CREDENTIALS),
        ("tokenFile", "put token there"),
        ("client-certificate", "put client-certificate-data there"),
        ("client-key", "put client-key-data there"),
        ("certificate-authority", AUTHORITY),
        ("insecure-skip-tls-verify", AUTHORITY),
        ("proxy-url", REMOVE),
        ("as", REMOVE),
        ("as-uid", REMOVE),
        ("as-groups", REMOVE),
        ("as-user-extra", REMOVE),
    ];
    FIELDS.into_iter().find(|(refused, _)| *refused == name)
}
