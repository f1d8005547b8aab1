//! One golden case.

use std::{fs, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_core::providers::{Kind, Output, Problem, Source, Sources, ValuesError, kinds};
use sluice_crds::foreign::Cluster;

use crate::made_up::Greeting;

/// Marker in every credential of every case.
pub(crate) const CANARY: &str = "canary";

/// A configuration with its Cluster and sources.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    #[serde(skip)]
    pub(crate) name: String,
    config: DynamicObject,
    cluster: Cluster,
    #[serde(default)]
    pub(crate) sources: Vec<Value>,
    pub(crate) expect: Expect,
}

/// Expected result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub(crate) enum Expect {
    Output {
        addon: String,
        values: Value,
        #[serde(default)]
        objects: Vec<Value>,
        #[serde(default)]
        former_owners: Vec<String>,
        #[serde(default)]
        obsolete: Vec<String>,
        #[serde(default)]
        owned: Vec<String>,
        /// All objects read, which are those to watch.
        #[serde(default)]
        reads: Vec<String>,
    },
    Problem {
        problem: String,
        /// Required parts of the message.
        says: Vec<String>,
    },
}

/// Actual result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evaluated {
    pub(crate) outcome: Result<Output, Problem>,
    pub(crate) read: Vec<Source>,
}

/// Returns all kinds, including the made-up one.
pub(crate) fn table() -> Vec<Kind> {
    let mut table = kinds();
    table.push(Kind::of::<Greeting>());
    table
}

/// Returns all cases, sorted by name.
pub(crate) fn all() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/providers/cases");
    let mut files: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .flat_map(|kind| fs::read_dir(kind.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &Path| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(path).unwrap();
        let mut case: Case = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        case.name = name;
        case
    };
    files.iter().map(|path| read(path)).collect()
}

impl Case {
    pub(crate) fn kind(&self) -> Kind {
        let types = self.config.types.as_ref().unwrap();
        let ours =
            |kind: &Kind| kind.resource.kind == types.kind && kind.resource.api_version == types.api_version;
        table()
            .into_iter()
            .find(ours)
            .unwrap_or_else(|| panic!("{}: unknown kind", self.name))
    }

    /// Resolves the requested reads until none is left, like the controller.
    pub(crate) fn evaluate(&self) -> Evaluated {
        let kind = self.kind();
        let mut sources = Sources::default();
        let outcome = loop {
            match kind.values(&self.config, &self.cluster, &sources) {
                Err(ValuesError::Unread(source)) => {
                    let found = self.sources.iter().filter(|object| is(object, &source));
                    let found = found.cloned().map(with_encoded_data).collect();
                    sources.insert(source, found);
                }
                Err(ValuesError::Problem(problem)) => break Err(problem),
                Ok(output) => break Ok(output),
            }
        };
        Evaluated {
            outcome,
            read: sources.read().cloned().collect(),
        }
    }

    /// Returns the case without an object.
    pub(crate) fn without(&self, source: &Source) -> Self {
        let mut case = self.clone();
        case.sources.retain(|object| !is(object, source));
        case
    }
}

/// Whether `source` names `object`.
pub(crate) fn is(object: &Value, source: &Source) -> bool {
    let api_version = object["apiVersion"].as_str().unwrap();
    let its_group = api_version.split_once('/').map_or("", |(group, _)| group);
    let metadata = &object["metadata"];
    source.group_kind() == (its_group, object["kind"].as_str().unwrap())
        && match source {
            Source::Object { namespace, name, .. } => {
                metadata["namespace"].as_str() == namespace.as_deref()
                    && metadata["name"].as_str() == Some(name)
            }
            Source::Every { .. } => true,
        }
}

/// Encodes `stringData` of a Secret as `data`.
fn with_encoded_data(mut object: Value) -> Value {
    if let Some(Value::Object(texts)) = object.get("stringData").cloned() {
        let encoded = texts.into_iter().map(|(key, text)| {
            let text = text.as_str().unwrap_or_default();
            (key, json!(BASE64_STANDARD.encode(text)))
        });
        object["data"] = encoded.collect();
    }
    object
}

impl Expect {
    /// # Errors
    /// Returns a readable difference.
    pub(crate) fn compare(&self, evaluated: &Evaluated) -> Result<(), String> {
        match (self, &evaluated.outcome) {
            (
                Self::Output {
                    addon,
                    values,
                    objects,
                    former_owners,
                    obsolete,
                    owned,
                    reads,
                },
                Ok(output),
            ) => {
                let named = |sources: &[Source]| sources.iter().map(ToString::to_string).collect::<Vec<_>>();
                // The package reads the encoded document.
                let document = output.document().remove("values.yaml").unwrap_or_default();
                let read: Value = serde_saphyr::from_slice(&document).map_err(|error| error.to_string())?;
                same("addon", &json!(addon), &json!(output.addon))?;
                same("values", values, &read)?;
                same("objects", &json!(objects), &json!(output.objects))?;
                same(
                    "former owners",
                    &json!(former_owners),
                    &json!(output.former_owners),
                )?;
                same("obsolete", &json!(obsolete), &json!(named(&output.obsolete)))?;
                same("owned", &json!(owned), &json!(named(&output.owned)))?;
                same("reads", &json!(reads), &json!(named(&evaluated.read)))
            }
            (Self::Problem { problem, says }, Err(found)) => {
                same("reason", &json!(problem), &json!(found.reason.as_str()))?;
                match says.iter().find(|text| !found.message.contains(*text)) {
                    Some(text) => Err(format!("{:?} is not in {:?}", text, found.message)),
                    None => Ok(()),
                }
            }
            (_, Ok(output)) => Err(format!("a problem was expected, found {:#}", output.values)),
            (_, Err(problem)) => Err(format!("values were expected, found {problem}")),
        }
    }
}

fn same(what: &str, expected: &Value, found: &Value) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what} expected\n{expected:#}\nfound\n{found:#}"))
    }
}
