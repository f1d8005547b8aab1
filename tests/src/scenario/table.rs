//! Objects as kubectl shows them: the API server renders the columns of a kind.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

/// What kubectl asks for.
pub(super) const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What `kubectl get` prints of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns, as kubectl prints them: in capitals.
    pub columns: Vec<String>,
    /// The cells of each object.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The objects of a list, or one object, with the columns that `kubectl get` prints without `-o wide`.
    pub async fn get(client: &Client, path: &str) -> Result<Self> {
        let request = http::Request::get(path)
            .header("accept", AS_TABLE)
            .body(Vec::new())?;
        let table: Value = client
            .request(request)
            .await
            .with_context(|| format!("get {path} as a table"))?;
        let definitions = table["columnDefinitions"]
            .as_array()
            .context("a table without columns")?;
        let shown: Vec<usize> = (0..definitions.len())
            .filter(|column| definitions[*column]["priority"] == 0)
            .collect();
        let columns = shown
            .iter()
            .map(|column| text(&definitions[*column]["name"]).to_uppercase());
        let rows = table["rows"].as_array().into_iter().flatten();
        let cells = |row: &Value| shown.iter().map(|column| text(&row["cells"][*column])).collect();
        Ok(Self {
            columns: columns.collect(),
            rows: rows.map(cells).collect(),
        })
    }

    /// The cells of the object of this name, by the names of the columns.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<BTreeMap<&str, &str>> {
        let row = self
            .rows
            .iter()
            .find(|row| row.first().is_some_and(|first| first == name))?;
        let cells = row.iter().map(String::as_str);
        Some(self.columns.iter().map(String::as_str).zip(cells).collect())
    }
}

/// As kubectl aligns it.
impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                lines()
                    .map(|line| line[column].chars().count())
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        for line in lines() {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let cells: Vec<String> = cells.collect();
            writeln!(f, "{}", cells.join("   ").trim_end())?;
        }
        Ok(())
    }
}

/// A cell as kubectl prints it.
pub(super) fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
