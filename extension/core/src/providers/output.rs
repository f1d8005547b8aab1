//! Output of a configuration: values and further objects.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::ser_options;
use sluice_crds::labels::name;

use super::Source;
use crate::packages::build::Values;

/// Output of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Name of the package in the name of the Secret: `<cluster>-<addon>-data-values`.
    pub addon: &'static str,
    /// The values document.
    pub values: Value,
    /// Further objects that have to exist, each complete.
    pub objects: Vec<Value>,
    /// UIDs of owners that an earlier release set on `objects`, to remove.
    pub former_owners: Vec<String>,
    /// Objects to delete.
    pub obsolete: Vec<Source>,
    /// Secrets that the configuration names and that are deleted with the Cluster.
    pub owned: Vec<Source>,
}

impl Output {
    /// Creates an output with values and no further objects.
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

    /// The content of the Secret as readable YAML. Equal values give equal bytes.
    #[must_use]
    pub fn document(&self) -> Values {
        // Long lines are not folded, and certificates keep their lines.
        let options = ser_options! { folded_wrap_chars: usize::MAX };
        let document = serde_saphyr::to_string_with_options(&self.values, options);
        // JSON is valid YAML.
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
        fn values_round_trip(text in any::<String>(), key in "[a-z]{1,8}", number in any::<i32>()) {
            let values = json!({&key: {"text": text, "number": number, "list": [text, ""]}});
            let read: Value = serde_saphyr::from_str(&document(&values)).unwrap();
            prop_assert_eq!(read, values);
        }
    }
}
