//! `sluice status`: lists the current upgrades once.

use std::process::ExitCode;

use sluice_proto::status::v1::{Cluster, GetClusterRequest, ListClustersRequest, ListClustersResponse};
use tokio::time::timeout;
use tonic::Status;

use super::{
    arguments::{Output, StatusArgs},
    connection::{ANSWER, Connection, Trouble},
    json::json,
    lines::table,
    terminal::{Terminal, print},
};

pub(super) async fn status(asked: &StatusArgs, terminal: &Terminal) -> Result<ExitCode, Trouble> {
    let mut connection = Connection::open(&asked.server).await?;
    let clusters = match &asked.name {
        Some(name) => one(&mut connection, &asked.namespace, name).await?,
        None => all(&mut connection, asked).await?,
    };
    if asked.output == Output::Json {
        let next_page_token = String::new();
        let all = ListClustersResponse {
            clusters,
            next_page_token,
        };
        print(&json("ListClustersResponse", &all, true)?)?;
    } else {
        for line in table(terminal, &clusters) {
            terminal.line(&line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(connection: &mut Connection, namespace: &str, name: &str) -> Result<Vec<Cluster>, Trouble> {
    let request = connection.request(GetClusterRequest {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    });
    let answer = in_time(connection.client.get_cluster(request)).await;
    let answer = answer.map_err(|status| connection.refused(status))?;
    Ok(answer.into_inner().cluster.into_iter().collect())
}

async fn all(connection: &mut Connection, asked: &StatusArgs) -> Result<Vec<Cluster>, Trouble> {
    let namespace = if asked.all_namespaces {
        ""
    } else {
        &asked.namespace
    };
    let (mut clusters, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = connection.request(ListClustersRequest {
            namespace: namespace.to_owned(),
            page_size: 0,
            page_token,
            only_upgrading: asked.upgrading,
        });
        let page = in_time(connection.client.list_clusters(request)).await;
        let page = page.map_err(|status| connection.refused(status))?.into_inner();
        clusters.extend(page.clusters);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(clusters);
        }
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("no answer within {} s", ANSWER.as_secs()));
    timeout(ANSWER, call).await.map_err(late).flatten()
}
