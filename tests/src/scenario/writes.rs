//! How often each object was written, as etcd counts it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::json;

use super::cluster::Cluster;

/// How often every object of one Cluster was written: beside it on the management cluster, and in its workload cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    /// By key: revision of the creation, and writes since then.
    keys: BTreeMap<String, (i64, i64)>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    kvs: Vec<Counted>,
}

#[derive(Deserialize)]
struct Counted {
    key: String,
    create_revision: String,
    version: String,
}

impl Cluster {
    /// How often the objects of the scenario's namespace and those of the workload cluster were written so far.
    pub async fn writes(&self) -> Result<Writes> {
        let etcd = self.scene().world().stack().core().etcd().url();
        let client = Client::try_from(Config::new(etcd.parse().context("read the address of etcd")?))?;
        let object = self.object().await?;
        let control_plane = self.control_plane(&object).await?;
        let workload = format!("/wl/{control_plane}/");
        let namespace = format!("/{}/", self.scene().namespace());
        let mut keys = read(&client, "/mgmt/").await?;
        keys.retain(|key, _| key.contains(&namespace));
        keys.extend(read(&client, &workload).await?);
        Ok(Writes { keys })
    }
}

impl Writes {
    /// Written objects between `before` and these counts, with the number of writes, including deletions.
    #[must_use]
    pub fn since(&self, before: &Self) -> BTreeMap<String, i64> {
        let now = |key: &String| self.keys.get(key).copied();
        let mut written = BTreeMap::new();
        for (key, &(created, count)) in &self.keys {
            let times = match before.keys.get(key) {
                Some(&(earlier, counted)) if earlier == created => count - counted,
                // Deleted in between, and made again.
                Some(_) => count + 1,
                None => count,
            };
            written.insert(key.clone(), times);
        }
        let gone = before.keys.keys().filter(|key| now(key).is_none());
        written.extend(gone.map(|key| (key.clone(), 1)));
        written.retain(|_, times| *times > 0);
        written
    }
}

/// Fails unless the number of writes of each key is that in `expected`; none means any number.
pub fn are_expected(written: &BTreeMap<String, i64>, expected: impl Fn(&str) -> Option<i64>) -> Result<()> {
    let unexpected: BTreeMap<&String, &i64> = written
        .iter()
        .filter(|(key, times)| expected(key).is_some_and(|expected| expected != **times))
        .collect();
    ensure!(unexpected.is_empty(), "written without a reason: {unexpected:?}");
    Ok(())
}

async fn read(client: &Client, prefix: &str) -> Result<BTreeMap<String, (i64, i64)>> {
    // The first key behind all that begin with the prefix: "0" follows "/".
    let end = format!("{}0", prefix.trim_end_matches('/'));
    let range = json!({
        "key": BASE64_STANDARD.encode(prefix),
        "range_end": BASE64_STANDARD.encode(end),
        "keys_only": true,
    });
    let request = http::Request::post("/v3/kv/range")
        .header("content-type", "application/json")
        .body(range.to_string().into_bytes())?;
    let answer: Answer = client.request(request).await.context("read the keys of etcd")?;
    answer.kvs.into_iter().map(Counted::entry).collect()
}

impl Counted {
    fn entry(self) -> Result<(String, (i64, i64))> {
        let key = BASE64_STANDARD.decode(self.key).context("decode a key")?;
        let counts = (self.create_revision.parse()?, self.version.parse()?);
        Ok((String::from_utf8_lossy(&key).into_owned(), counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(keys: &[(&str, i64, i64)]) -> Writes {
        let keys = keys
            .iter()
            .map(|(key, created, count)| ((*key).to_owned(), (*created, *count)));
        Writes { keys: keys.collect() }
    }

    fn since(before: &[(&str, i64, i64)], now: &[(&str, i64, i64)]) -> Vec<(String, i64)> {
        writes(now).since(&writes(before)).into_iter().collect()
    }

    #[test]
    fn writes_creations_and_deletions_are_counted() {
        assert!(since(&[("a", 1, 3)], &[("a", 1, 3)]).is_empty());
        assert_eq!(since(&[("a", 1, 3)], &[("a", 1, 5)]), [("a".to_owned(), 2)]);
        assert_eq!(since(&[], &[("a", 9, 1)]), [("a".to_owned(), 1)]);
        assert_eq!(since(&[("a", 1, 3)], &[]), [("a".to_owned(), 1)]);
        assert_eq!(since(&[("a", 1, 3)], &[("a", 9, 1)]), [("a".to_owned(), 2)]);
    }

    #[test]
    fn a_write_that_nobody_expects_is_refused_on_either_side() {
        let expected = |key: &str| match key {
            "/wl/1/configmaps/a" => None,
            "/wl/1/secrets/touched" => Some(2),
            _ => Some(0),
        };
        let verdict = |key: &str, times| are_expected(&BTreeMap::from([(key.to_owned(), times)]), expected);
        assert!(verdict("/wl/1/configmaps/a", 7).is_ok());
        assert!(verdict("/wl/1/secrets/touched", 2).is_ok());
        assert!(verdict("/wl/1/secrets/touched", 3).is_err());
        assert!(verdict("/wl/1/secrets/another", 1).is_err());
        assert!(verdict("/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one", 1).is_err());
    }
}
