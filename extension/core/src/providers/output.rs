//! What a configuration turns into.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::ser_options;
use sluice_crds::labels::name;

use super::Source;
use crate::packages::build::Values;

/// What a configuration turns into.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Name of the package in the name of the Secret: `<cluster>-<addon>-data-values`.
    pub addon: &'static str,
    /// The values document.
    pub values: Value,
    /// Further objects that have to exist, each complete.
    pub objects: Vec<Value>,
    /// UIDs of owners that an earlier release gave to `objects`, and that keep them no longer.
    pub former_owners: Vec<String>,
    /// Objects that must not exist any more.
    pub obsolete: Vec<Source>,
    /// Secrets that shall go with the Cluster: those that the configuration names for it.
    pub owned: Vec<Source>,
}

impl Output {
    /// Values for a package, and nothing beside.
    #[must_use]
    pub fn new(addon: &'static str, values: Value) -> Self {
        Self {
            addon,
            values,
            objects: Vec::new(),
            former_owners: Vec::new(),
            obsolete: Vec::new(),
            owned: Vec::new(),
        }
    }

    /// The content of the Secret, as YAML that people can read. The same values are always the same bytes.
    #[must_use]
    pub fn document(&self) -> Values {
        // A long line stays one, and certificates keep their lines.
        let options = ser_options! { folded_wrap_chars: usize::MAX };
        let document = serde_saphyr::to_string_with_options(&self.values, options);
        // JSON is YAML too.
        let document = document.unwrap_or_else(|_| self.values.to_string());
        BTreeMap::from([(name::VALUES_KEY.to_owned(), document.into_bytes())])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn document(values: &Value) -> String {
        let output = Output::new("antrea", values.clone());
        String::from_utf8(output.document().remove("values.yaml").unwrap()).unwrap()
    }

    #[test]
    fn values_are_read_by_people_too() {
        let suites = format!("TLS_{}", "A,".repeat(80));
        let values = json!({
            "antrea": {"config": {"defaultMTU": "1450", "noSNAT": true, "port": 10, "tlsCipherSuites": suites}},
            "ca": "-----BEGIN-----\nQQ==\n-----END-----\n",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        });
        assert_eq!(
            document(&values),
            format!(
                "antrea:\n  config:\n    defaultMTU: \"1450\"\n    noSNAT: true\n    port: 10\n    \
                 tlsCipherSuites: {suites}\nca: |\n  -----BEGIN-----\n  QQ==\n  -----END-----\n\
                 nodeSelector:\n  node-role.kubernetes.io/control-plane: \"\"\n"
            )
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_was_meant(text in any::<String>(), key in "[a-z]{1,8}", number in any::<i32>()) {
            let values = json!({&key: {"text": text, "number": number, "list": [text, ""]}});
            let read: Value = serde_saphyr::from_str(&document(&values)).unwrap();
            prop_assert_eq!(read, values);
        }
    }
}
