//! Copies of a cluster, written straight into etcd, as the API server would have stored them.

use std::time::Duration;

use aho_corasick::AhoCorasick;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{TryStreamExt as _, stream};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kinds::{Kind, OF_A_CLUSTER, SECRET};
use super::objects::{Objects, name_of};
use super::workloads::Workloads;
use super::{name, number};

/// What stands for the kubeconfig in base64.
const KUBECONFIG: &str = "@kubeconfig@";

/// Digits of a UID that the number of a cluster takes the place of.
const DIGITS: usize = 5;

/// How long Sluice may take to see that Clusters are gone.
const SEEN: Duration = Duration::from_secs(5);

/// Transactions that are under way at once.
const UNDER_WAY: usize = 4;

/// Objects of a cluster on the management cluster, to copy.
pub(super) struct Form {
    /// Names, UIDs and the kubeconfig: what differs between copies.
    differing: AhoCorasick,
    of_first: Vec<String>,
    objects: Vec<Stored>,
}

/// An object, and where it is stored.
struct Stored {
    kind: Kind,
    name: String,
    content: String,
}

impl Form {
    /// Reads the objects of the cluster `first`.
    pub(super) async fn of(objects: &Objects, first: &str) -> Result<Self> {
        let mut found = Vec::new();
        for kind in OF_A_CLUSTER {
            for object in objects.all(kind, first).await? {
                found.push((kind, object));
            }
        }
        Self::from(first, found)
    }

    fn from(first: &str, found: Vec<(Kind, Value)>) -> Result<Self> {
        let mut of_first = vec![first.to_owned(), KUBECONFIG.to_owned()];
        let mut objects = Vec::new();
        for (kind, mut object) in found {
            let name = name_of(&object).to_owned();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            let uid = object["metadata"]["uid"]
                .as_str()
                .with_context(|| format!("{name} has no UID"))?;
            of_first.push(uid.to_owned());
            if kind == SECRET {
                if name == format!("{first}-kubeconfig") {
                    object["data"]["value"] = json!(KUBECONFIG);
                } else {
                    ensure!(
                        !names(&object["data"], first),
                        "Secret {name} holds the name of its cluster in base64"
                    );
                }
            }
            objects.push(Stored {
                kind,
                name,
                content: object.to_string(),
            });
        }
        Ok(Self {
            differing: AhoCorasick::new(&of_first)?,
            of_first,
            objects,
        })
    }

    /// Bytes of the objects of one cluster, as they are stored.
    pub(super) fn bytes(&self) -> usize {
        self.objects.iter().map(|object| object.content.len()).sum()
    }

    /// How many objects a cluster has.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of the largest object of a kind.
    pub(super) fn bytes_of(&self, kind: Kind) -> usize {
        let of_kind = self.objects.iter().filter(|object| object.kind == kind);
        of_kind
            .map(|object| object.content.len())
            .max()
            .unwrap_or_default()
    }

    /// The objects in layers, none of which has two objects of a watched kind. What one transaction writes has one resourceVersion, and a
    /// watch that goes on from there would miss the second one.
    fn layers(&self) -> Vec<Vec<usize>> {
        let mut layers: Vec<Vec<usize>> = Vec::new();
        for (at, object) in self.objects.iter().enumerate() {
            let earlier = self.objects[..at]
                .iter()
                .filter(|earlier| earlier.kind == object.kind);
            let layer = if object.kind == SECRET { 0 } else { earlier.count() };
            if layers.len() <= layer {
                layers.resize_with(layer + 1, Vec::new);
            }
            layers[layer].push(at);
        }
        layers
    }

    /// Keys and values of the copy with this number.
    fn copy(&self, prefix: &str, copy: u32, kubeconfig: &str) -> Vec<(String, String)> {
        let instead: Vec<String> = self
            .of_first
            .iter()
            .enumerate()
            .map(|(position, of_first)| match position {
                0 => name(copy),
                1 => BASE64_STANDARD.encode(kubeconfig),
                _ => format!("{}{copy:0DIGITS$}", &of_first[..of_first.len() - DIGITS]),
            })
            .collect();
        let of_copy = |text: &str| self.differing.replace_all(text, &instead);
        let pair = |object: &Stored| {
            (
                object.kind.key(prefix, &of_copy(&object.name)),
                of_copy(&object.content),
            )
        };
        self.objects.iter().map(pair).collect()
    }
}

/// Whether a decoded value of `data` contains `name`.
fn names(data: &Value, name: &str) -> bool {
    let values = data.as_object().into_iter().flatten();
    let mut decoded = values.filter_map(|(_, value)| BASE64_STANDARD.decode(value.as_str()?).ok());
    decoded.any(|value| String::from_utf8_lossy(&value).contains(name))
}

/// The etcd of the management cluster.
pub(super) struct Store {
    client: Client,
    prefix: String,
}

impl Store {
    /// The data of the API server with this prefix.
    pub(super) fn open(url: &str, prefix: &str) -> Result<Self> {
        Ok(Self {
            client: Client::try_from(Config::new(url.parse().context("read the address of etcd")?))?,
            prefix: prefix.to_owned(),
        })
    }

    /// Writes the copies with these numbers.
    pub(super) async fn write(&self, form: &Form, workloads: &Workloads, copies: &[u32]) -> Result<()> {
        self.each(form, workloads, copies, |(key, value)| {
            json!({"request_put": {"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)}})
        })
        .await
    }

    /// Deletes the copies with these numbers, whose names begin with this digit, and their dependent objects.
    pub(super) async fn delete(
        &self,
        form: &Form,
        workloads: &Workloads,
        copies: &[u32],
        digit: u8,
    ) -> Result<()> {
        self.each(
            form,
            workloads,
            copies,
            |(key, _)| json!({"request_delete_range": {"key": BASE64_STANDARD.encode(key)}}),
        )
        .await?;
        // Sluice may have seen that a ClusterBootstrap was gone before it saw that its Cluster was.
        sleep(SEEN).await;
        for kind in OF_A_CLUSTER {
            let key = kind.key(&self.prefix, &format!("fleet-{digit}"));
            // The key after the last one that begins so.
            let mut end = key.clone().into_bytes();
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            let range = json!({"key": BASE64_STANDARD.encode(key), "range_end": BASE64_STANDARD.encode(end)});
            self.ask("/v3/kv/deleterange", &range).await?;
        }
        Ok(())
    }

    /// Makes an operation of each key and value of each copy.
    async fn each(
        &self,
        form: &Form,
        workloads: &Workloads,
        copies: &[u32],
        operation: impl Fn(&(String, String)) -> Value + Copy,
    ) -> Result<()> {
        stream::iter(copies.iter().map(Ok))
            .try_for_each_concurrent(UNDER_WAY, |copy| async move {
                let pairs = form.copy(&self.prefix, *copy, &workloads.kubeconfig(&name(*copy)));
                for layer in form.layers() {
                    let operations: Vec<Value> = layer.into_iter().map(|at| operation(&pairs[at])).collect();
                    self.ask("/v3/kv/txn", &json!({"success": operations})).await?;
                }
                Ok(())
            })
            .await
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<()> {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
        self.client
            .request::<Value>(request)
            .await
            .with_context(|| format!("ask etcd {path}"))?;
        Ok(())
    }
}

/// The number of the cluster whose objects are copied is in its name.
pub(super) fn is_copy(object: &Value, copy: u32) -> bool {
    number(name_of(object)) == Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::kinds::{CLUSTER, WORKERS};

    fn form() -> Form {
        let cluster = CLUSTER.object("fleet-00000", json!({"metadata": {"uid": "8e4f1f2a-0000-4000-8000-0123456789ab", "resourceVersion": "7", "generation": 2}}));
        let secret = SECRET.object(
            "fleet-00000-kubeconfig",
            json!({
                "metadata": {"uid": "9e4f1f2a-0000-4000-8000-0123456789ab", "ownerReferences": CLUSTER.owner("fleet-00000", "8e4f1f2a-0000-4000-8000-0123456789ab")},
                "data": {"value": "YQ=="},
            }),
        );
        Form::from("fleet-00000", vec![(CLUSTER, cluster), (SECRET, secret)]).unwrap()
    }

    #[test]
    fn a_copy_has_a_name_uids_and_a_kubeconfig_of_its_own() {
        let pairs = form().copy("management", 42, "leads to 42");
        assert_eq!(
            pairs[0].0,
            "/management/cluster.x-k8s.io/clusters/fleet/fleet-00042"
        );
        assert_eq!(pairs[1].0, "/management/secrets/fleet/fleet-00042-kubeconfig");
        let object = |at: usize| serde_json::from_str::<Value>(&pairs[at].1).unwrap();
        let (cluster, secret) = (object(0), object(1));
        assert_eq!(cluster["metadata"]["uid"], "8e4f1f2a-0000-4000-8000-012345600042");
        assert_eq!(cluster["metadata"]["resourceVersion"], Value::Null);
        assert_eq!(
            secret["metadata"]["ownerReferences"][0]["uid"],
            cluster["metadata"]["uid"]
        );
        assert_eq!(secret["data"]["value"], BASE64_STANDARD.encode("leads to 42"));
        assert!(is_copy(&secret, 42));
    }

    #[test]
    fn no_transaction_has_two_objects_of_a_watched_kind() {
        let uid = |number: u32| format!("8e4f1f2a-0000-4000-8000-{number:012}");
        let kinds = [SECRET, SECRET, WORKERS, WORKERS, WORKERS, CLUSTER];
        let objects = kinds.into_iter().zip(0..);
        let objects = objects.map(|(kind, number)| {
            let metadata = json!({"metadata": {"uid": uid(number)}});
            (kind, kind.object(&format!("fleet-00000-{number}"), metadata))
        });
        let form = Form::from("fleet-00000", objects.collect()).unwrap();
        assert_eq!(form.layers(), [vec![0, 1, 2, 5], vec![3], vec![4]]);
    }

    #[test]
    fn a_name_in_base64_is_refused_because_no_copy_would_have_its_own() {
        let data = json!({"values.yaml": BASE64_STANDARD.encode("clusterName: fleet-00000")});
        let secret = SECRET.object(
            "fleet-00000-a",
            json!({"metadata": {"uid": "9e4f1f2a-0000-4000-8000-0123456789ab"}, "data": data}),
        );
        assert!(Form::from("fleet-00000", vec![(SECRET, secret)]).is_err());
    }
}
