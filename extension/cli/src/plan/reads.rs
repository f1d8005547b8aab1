//! Reads that a plan asks for.

use kube::discovery::Scope;
use sluice_core::{
    cache::{snapshot::Snapshot, stores::Stored},
    protocol::{self, Failure, Read, ReadResult, Server},
    reconcile::cluster::Facts,
};
use sluice_crds::{
    foreign::{Cluster, Package},
    run::ClusterBootstrapTemplate,
};

use crate::reader::Reader;

impl Reader {
    /// Returns the result of a read of a plan. Objects that were listed come from the snapshot.
    pub(super) async fn answer(&self, facts: &Facts, snapshot: &Snapshot, read: &Read) -> ReadResult {
        let answer = self.answered(facts, snapshot, read).await;
        answer.unwrap_or_else(ReadResult::Failed)
    }

    async fn answered(&self, facts: &Facts, snapshot: &Snapshot, read: &Read) -> Result<ReadResult, Failure> {
        let system = Some(facts.settings.system_namespace.as_str());
        let not_read = || Failure::other(read.server(), "sluice plan has no such read");
        Ok(match read {
            Read::Template(release) => {
                let template = self.get::<ClusterBootstrapTemplate>(system, release).await?;
                template.map_or(ReadResult::Absent, ReadResult::Template)
            }
            Read::Package(name) => {
                let package = Stored::<Package>::found(snapshot, system, name)
                    .map_err(|object| Failure::undecodable(Server::Management, object))?;
                package.map_or(ReadResult::Absent, ReadResult::Package)
            }
            Read::Cluster(namespace, name) => {
                let cluster = self.get::<Cluster>(Some(namespace), name).await?;
                cluster.map_or(ReadResult::Absent, ReadResult::Cluster)
            }
            Read::Object(key, _) if key.server == Server::Management => {
                let text = self.text(key).await?;
                text.map_or(ReadResult::Absent, |text| ReadResult::of_object(key, &text))
            }
            Read::Served { group, kind } => match self.served(group, kind).await? {
                Some((resource, Scope::Namespaced)) => {
                    ReadResult::Served(protocol::Resource::from(&resource))
                }
                Some((resource, Scope::Cluster)) => {
                    ReadResult::ServedClusterWide(protocol::Resource::from(&resource))
                }
                None => ReadResult::Absent,
            },
            read if read.server() == Server::Management => {
                let request = read.list(&facts.settings.system_namespace, &facts.owner.name);
                let text = self.request(request.ok_or_else(not_read)??).await?;
                ReadResult::of_list(Server::Management, &text)
            }
            _ => return Err(not_read()),
        })
    }
}
