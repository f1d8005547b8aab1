//! Steps 2 and 3: values, from whatever they are computed from.

use std::sync::Arc;

use serde_json::Value;
use sluice_core::providers::{Output, Problem, Reason, Source, Sources, Stop};
use sluice_crds::foreign::Cluster;

use super::{Error, OfKind, dereference::Found};

/// What came of it.
pub(super) struct Evaluated {
    /// What has to be written, and for which Cluster.
    pub(super) outcome: Result<(Arc<Cluster>, Output), Problem>,
    /// What was read for it.
    pub(super) sources: Sources,
    /// Whether it depends on something that no watch shows.
    pub(super) unwatched: bool,
}

/// Computes it, reading what it asks for.
pub(super) async fn run(ctx: &OfKind, found: &Found) -> Result<Evaluated, Error> {
    let mut sources = Sources::default();
    let mut unwatched = false;
    let outcome = loop {
        let cluster = match &found.cluster {
            Ok(cluster) => cluster,
            Err(problem) => break Err(problem.clone()),
        };
        match ctx.kind.values(&found.config, cluster, &sources) {
            Ok(output) => break Ok((Arc::clone(cluster), output)),
            Err(Stop::Problem(problem)) => break Err(problem),
            Err(Stop::Unread(source)) => {
                let read = match read(ctx, found, &source).await {
                    // It is woken when the kind can be read.
                    Err(Error::Unreadable(source, why)) if source.kind_is_given() => {
                        break Err(unreadable(&source, &why));
                    }
                    read => read?,
                };
                unwatched |= !read.watched;
                sources.insert(source, read.objects);
            }
        }
    };
    Ok(Evaluated {
        outcome,
        sources,
        unwatched,
    })
}

/// A kind that the Cluster names is its user's to put right, and no matter of others.
fn unreadable(source: &Source, why: &str) -> Problem {
    let (group, kind) = source.group_kind();
    Problem::new(
        Reason::ControlPlaneKindUnreadable,
        format!("control plane kind {kind} in group {group:?} of spec.controlPlaneRef: {why}"),
    )
}

/// What is there, and whether a change of it is noticed.
pub(super) struct Read {
    pub(super) objects: Vec<Value>,
    pub(super) watched: bool,
}

/// Reads something that the configuration depends on from now on.
pub(super) async fn read(ctx: &OfKind, found: &Found, source: &Source) -> Result<Read, Error> {
    ctx.shared.dependents.add(&found.reference, source);
    ctx.shared.watches.read(source).await
}
