//! Reconcile of one object: it writes the desired labels, annotations and conditions.

use std::time::Duration;

use kube::{Client, Resource, ResourceExt};
use sluice_core::{
    cache::stores::Stored,
    error_chain::error_chain,
    events::Notice,
    limits::Again,
    protocol::{Done, Failure, Object, Read, ReadResult, Reconciler, Server, Write},
    releases::{
        ClusterConditions, Install, InstallState, ReleaseObject, ReleaseStatus, TkrPackage, of_image,
    },
};
use sluice_crds::run::TanzuKubernetesRelease;
use tracing::warn;

use super::{Shared, offer};
use crate::{
    clock::{clock, now},
    controllers::executor::{self, Error, counted, isolated},
    lock::lock,
};

/// Field manager of everything that this controller writes.
const FIELD_MANAGER: &str = "sluice-releases";

/// Reconciles one object. Returns the delay until it is requeued without an event.
pub(super) async fn turn(shared: &Shared, named: ReleaseObject) -> Option<Duration> {
    let retries = &shared.context.retries;
    let metrics = &shared.context.reconciles.controllers.release;
    let reconcile = isolated(metrics, Box::pin(reconcile(shared, &named)));
    match counted(metrics, reconcile).await {
        Ok(again) => {
            lock(retries).forget(&named);
            again
        }
        Err(error) => {
            let again = lock(retries).failed(named.clone(), error.is_conflict(), now());
            if let Again::Later(_) = again {
                warn!(object = ?named, error = %error_chain(&error), "Failed to reconcile object");
            }
            Some(again.wait())
        }
    }
}

async fn reconcile(shared: &Shared, named: &ReleaseObject) -> Result<Option<Duration>, Error> {
    if let ReleaseObject::Package(name) = named {
        return package(shared, name).await;
    }
    reconcile_status(shared, named).await.map(|()| None)
}

/// Reconciles a release, an OSImage or a Cluster.
async fn reconcile_status(shared: &Shared, named: &ReleaseObject) -> Result<(), Error> {
    let context = &shared.context;
    let Some(evaluation) = lock(&shared.evaluation).clone() else {
        return Ok(());
    };
    match named {
        ReleaseObject::Release(name) => {
            let found = Stored::<TanzuKubernetesRelease>::get(&context.stores, None, name);
            saw(
                shared,
                named,
                found.as_deref().and_then(ResourceExt::uid).as_deref(),
            );
            let Some(release) = found else { return Ok(()) };
            let fault = evaluation.fault(name).map(|fault| Notice {
                warns: true,
                reason: fault.reason.as_str(),
                note: &fault.message,
            });
            match fault {
                Some(_) => context.events.publish(&release.object_ref(&()), fault).await,
                None => context.events.forget(&release.uid().unwrap_or_default()),
            }
            match evaluation.of_release(&release, clock().now) {
                Some(mark) => carry_out(shared, ("", name), &mark).await,
                None => Ok(()),
            }
        }
        ReleaseObject::Image(name) => match shared.context.stores.images.get(None, name) {
            Some(image) => match of_image(&image, clock().now) {
                Some(mark) => carry_out(shared, ("", name), &mark).await,
                None => Ok(()),
            },
            None => Ok(()),
        },
        ReleaseObject::Package(_) => Ok(()),
        ReleaseObject::Cluster(named) => match offer(shared, named) {
            Some(offer) => carry_out(shared, (named.namespace(), named.name()), &offer).await,
            None => Ok(()),
        },
    }
}

/// Reconciles a Package of the system namespace and its PackageInstall.
async fn package(shared: &Shared, name: &str) -> Result<Option<Duration>, Error> {
    let context = &shared.context;
    let (stores, namespace) = (&context.stores, context.system_namespace.as_str());
    if !stores.are_packages_listed() {
        // All Packages are queued once they are listed.
        return Ok(None);
    }
    let install = TkrPackage::install_name(name);
    let package = stores.packages.found(Some(namespace), name);
    let found = stores.installs.found(Some(namespace), &install);
    // Skips undecodable objects.
    let (Ok(package), Ok(found)) = (package, found) else {
        return Ok(None);
    };
    let uid = found.as_deref().and_then(ResourceExt::uid);
    saw(shared, &ReleaseObject::Package(name.to_owned()), uid.as_deref());
    let turn = TkrPackage::of(namespace, name, package.as_deref(), found.as_deref());
    let now = clock().now;
    let (state, again) = match (turn.install(), &found) {
        (Some(Install::Create(_)), _) => {
            let later = lock(&shared.underway).begins(name, now);
            if later.is_some() {
                return Ok(later);
            }
            (InstallState::Underway, None)
        }
        _ => lock(&shared.underway).saw(name, turn.state(), now),
    };
    if let InstallState::Failed(fault) = &state {
        context.metrics.installed(name, Some(fault.reason));
        if let Some(found) = &found {
            let notice = Some(fault.notice());
            context.events.publish(&found.object_ref(&()), notice).await;
        }
    } else if state == InstallState::Settled {
        context.metrics.installed(name, None);
        context.events.forget(&uid.unwrap_or_default());
    }
    if let Some(wanted) = turn.install() {
        carry_out(shared, (namespace, &install), &wanted).await?;
    }
    Ok(again)
}

/// Drops the event state of a deleted object.
fn saw(shared: &Shared, named: &ReleaseObject, uid: Option<&str>) {
    if let Some(gone) = lock(&shared.uids).saw(named, uid) {
        shared.context.events.forget(&gone);
    }
}

async fn carry_out<S>(shared: &Shared, subject: (&str, &str), reconciler: &S) -> Result<(), Error>
where
    S: Reconciler<LocalState = (), Effects = (), Hold = String>,
    for<'a> Host<'a>: executor::Host<S>,
{
    let host = Host {
        client: &shared.context.client,
        subject,
    };
    let (outcome, ()) = executor::run(&host, reconciler, &()).await;
    outcome.map(|_: Done| ())
}

/// Environment of one reconcile.
struct Host<'a> {
    client: &'a Client,
    /// Namespace and name.
    subject: (&'a str, &'a str),
}

macro_rules! hosts {
    ($($Reconciler:ty),+) => {
        $(impl executor::Host<$Reconciler> for Host<'_> {
            const MANAGER: &'static str = FIELD_MANAGER;

            fn subject(&self) -> (&str, &str) {
                self.subject
            }

            fn client(&self, server: Server) -> Result<&Client, Failure> {
                match server {
                    Server::Management => Ok(self.client),
                    Server::Workload => Err(Failure::other(server, "releases need no workload cluster")),
                }
            }

            async fn answer(&self, _ask: &Read) -> Result<ReadResult, Failure> {
                Ok(ReadResult::Absent)
            }

            async fn writing(&self, (): ()) {}

            fn wrote(&self, _write: &Write, _written: &Object) {}
        })+
    };
}
hosts!(ReleaseStatus, ClusterConditions, Install);
